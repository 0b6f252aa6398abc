//! The `if` blocks of a server or a location, and what becomes of the requests for which they answer.

use super::{
    access::{Closing, rejects},
    actions::is_missing_file,
    auth_request::hands_cookies_on,
    condition::{Condition, ConditionContext, Question, Test},
    converted_config::Fields,
    headers,
    program::{Case, Decision, Program, State, Used, variables_of},
    redirects::{answer, answers, redirects_some},
    report::ImportReport,
    template::ServerVariables,
    tree::{Directive, Scope},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An `if` whose requests get a response of their own.
#[derive(Clone, Debug)]
pub(super) struct Branch<'a> {
    pub directive: &'a Directive,
    /// The scope around it.
    scope: Scope<'a>,
    /// A word for its requests.
    pub label: String,
    /// Its requests get no error.
    pub lets_in: bool,
    /// An `if` before it closes its route.
    pub is_closed: bool,
}

/// All that the directives before a path's own action do.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches<'a> {
    pub all: Vec<Branch<'a>>,
    pub program: Program<'a>,
    pub closings: Vec<Closing>,
    pub deny: Vec<Value>,
    pub allow: Option<Vec<Value>>,
}

/// Where `if` blocks are, and what they are read with.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchContext<'a, 's> {
    pub scope: &'s Scope<'a>,
    pub maps: &'s [&'a Directive],
    pub variables: &'s ServerVariables<'a>,
}

impl<'a, 's> BranchContext<'a, 's> {
    const fn conditions(self) -> ConditionContext<'a, 's> {
        ConditionContext { maps: self.maps, variables: self.variables }
    }
}

impl<'a> Branches<'a> {
    pub(super) fn of(server: &Directive) -> Self {
        Self { program: Program::of(server), ..Self::default() }
    }

    /// Reads the directives of `block` that come before its own answer, behind those that are already
    /// here. `is_meant` leaves out the `if` blocks that are converted otherwise.
    pub(super) fn read(
        &mut self,
        block: &'a Directive,
        context: BranchContext<'a, '_>,
        is_meant: impl Fn(&Directive) -> bool,
        report: &mut ImportReport,
    ) {
        let may_answer = |inner: &Directive| answers(inner) || redirects_some(inner);
        for directive in block.inner().iter().take_while(|directive| !answers(directive)) {
            match directive.name.as_str() {
                "set" => self.program.set(directive),
                "break" if directive.args.is_empty() && directive.block.is_none() => {
                    report.take(directive);
                    self.program.end();
                }
                "if" if !is_meant(directive) => {}
                "if" if directive.inner().iter().any(may_answer) => {
                    if let Err(why) = self.add(directive, context, report) {
                        report.take_all(directive);
                        self.closings.push(Closing::new(directive, why));
                    }
                }
                "if" if hands_cookies_on(context.scope, directive) => report.take_all(directive),
                // The fallback of its location.
                "if" if is_missing_file(directive) => {}
                "if" => {
                    let question = Question::read(&directive.args);
                    self.program.ask(directive, question, context.conditions(), None);
                }
                _ => {}
            }
        }
    }

    /// Adds an `if` that answers.
    fn add(
        &mut self,
        directive: &'a Directive,
        context: BranchContext<'a, '_>,
        report: &mut ImportReport,
    ) -> Result<(), String> {
        if let Some(file) = existing_file(directive) {
            report.take_all(directive);
            let why = format!("flowgate does not look for files: {file} counts as missing");
            report.note(directive, why);
            return Ok(());
        }

        let question = Question::read(&directive.args)?;
        let answer_of = directive.inner().iter().find(|inner| answers(inner));
        let Some(answer_of) = answer_of else {
            return Err("it redirects some paths only".into());
        };

        let is_rejection = rejects(answer_of);
        let mut label = fitting(question.name);
        if !self.program.sets(question.name) {
            let condition = context.conditions().condition(&question)?;
            match condition {
                Condition::Always(false) => {
                    report.take_all(directive);
                    return Ok(());
                }
                Condition::Clients { listed, is_negated } if is_rejection => {
                    self.restrict(listed, is_negated)?;
                    report.take_all(directive);
                    if answer_of.arg(0) != "403" {
                        report.note(directive, "these clients get 403");
                    }
                    return Ok(());
                }
                Condition::Clients { .. } => {
                    return Err("no route is for some addresses only".into());
                }
                Condition::Always(true) | Condition::Request { .. } => {}
            }
            label = word(&condition);
        }

        let index = self.all.len();
        self.program.ask(directive, Ok(question), context.conditions(), Some(index));
        let is_closed = !self.closings.is_empty();
        let scope = context.scope.clone();
        let lets_in = !is_rejection;
        self.all.push(Branch { directive, scope, label, lets_in, is_closed });
        Ok(())
    }

    /// Returns the requests of a path by what happens to them, and what closes the path.
    pub(super) fn cases(
        &self,
        used: &Used,
        conditions: ConditionContext<'_, '_>,
        report: &mut ImportReport,
    ) -> (Vec<Case>, Vec<Closing>) {
        let mut closings = self.closings.clone();
        let answered = |index: usize| {
            let inner = self.all[index].directive.inner().iter();
            inner.flat_map(variables_of).collect::<BTreeSet<_>>()
        };

        match self.program.cases(used, conditions, answered) {
            Ok(cases) => {
                for directive in self.program.taken(used, answered) {
                    report.take(directive);
                    note_decoding(directive, report);
                }
                (cases, closings)
            }
            Err(unclear) => {
                let answering = self.all.iter().map(|branch| branch.directive);
                let others = answering.filter(|directive| directive.id != unclear.directive.id);
                let others = others.map(|directive| Closing::new(directive, unclear.why.clone()));
                closings.push(Closing::new(unclear.directive, unclear.why.clone()));
                closings.extend(others);
                let own = Decision { answer: None, state: State::default() };
                (vec![Case { tests: Vec::new(), decision: own }], closings)
            }
        }
    }

    /// Returns the fields of the route for an `if` that answers.
    pub(super) fn answer(
        &self,
        index: usize,
        state: &State,
        variables: &ServerVariables<'_>,
        report: &mut ImportReport,
    ) -> Fields {
        let Branch { directive, scope, .. } = &self.all[index];
        let block = state.answering(directive);
        let scope = scope.within(&block);
        let mut fields = answer(&block, &scope, variables, report).unwrap_or_default();
        headers::to_client(&scope, variables, &mut fields, report);
        fields
    }

    fn restrict(&mut self, listed: Vec<Value>, is_negated: bool) -> Result<(), String> {
        if !is_negated {
            self.deny.extend(listed);
        } else if self.allow.is_none() {
            self.allow = Some(listed);
        } else {
            return Err("two lists of allowed clients do not join".into());
        }
        Ok(())
    }

    /// Adds the clients of the lists to the `access` of a route.
    ///
    /// # Errors
    /// The route has a list of allowed clients of its own.
    pub(super) fn restrict_route(&self, fields: &mut Fields) -> Result<(), String> {
        if self.deny.is_empty() && self.allow.is_none() {
            return Ok(());
        }

        let mut access = match fields.0.get("access") {
            Some(Value::Object(access)) => Fields(access.clone()),
            _ => Fields::default(),
        };

        let mut denied =
            access.0.get("deny").and_then(Value::as_array).cloned().unwrap_or_default();
        for entry in &self.deny {
            if !denied.contains(entry) {
                denied.push(entry.clone());
            }
        }
        if !denied.is_empty() {
            access.set("deny", denied);
        }

        let is_twofold = self.allow.is_some() && access.0.contains_key("allow");
        if let Some(allow) = self.allow.as_ref().filter(|_| !is_twofold) {
            // A list without an entry allows nobody.
            if allow.is_empty() {
                access.set("deny", json!(["0.0.0.0/0", "::/0"]));
            } else {
                access.set("allow", allow.clone());
            }
        }

        fields.set("access", access);
        if is_twofold {
            return Err("two lists of allowed clients do not join".into());
        }
        Ok(())
    }
}

/// Notes that a field of the query is compared in another form than in nginx.
fn note_decoding(directive: &Directive, report: &mut ImportReport) {
    let question = Question::read(&directive.args);
    if let Some(name) = question.ok().and_then(|question| question.name.strip_prefix("arg_"))
        && directive.name == "if"
    {
        let why = format!("the case of `{name}` matters here, and its value is decoded");
        report.note(directive, why);
    }
}

/// Returns a word for the requests of a condition.
fn word(condition: &Condition) -> String {
    match condition {
        Condition::Request { test: Test::Method(methods), is_negated: false }
            if methods.len() == 1 =>
        {
            methods[0].to_ascii_lowercase()
        }
        Condition::Request { test: Test::Method(_), .. } => "method".into(),
        Condition::Request { test: Test::Header(name, _) | Test::Query(name, _), .. } => {
            fitting(name)
        }
        Condition::Request { test: Test::WholeQuery(_), .. } => "query".into(),
        Condition::Request { test: Test::Certificate(_), .. } => "certificate".into(),
        Condition::Always(_) | Condition::Clients { .. } => "if".into(),
    }
}

/// Returns a word of which the name of a route may be made.
fn fitting(name: &str) -> String {
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    name.chars().filter(|sign| fits(*sign)).collect()
}

/// Returns the file of `if (-f FILE)`, which nginx looks for, as for a page during maintenance.
fn existing_file(directive: &Directive) -> Option<&str> {
    let is_test = matches!(directive.arg(0), "(-f" | "(-e" | "(-d");
    let file = directive.args.get(1)?;
    is_test.then(|| file.strip_suffix(')').unwrap_or(file))
}
