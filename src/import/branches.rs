//! The `if` blocks of a server or a location that answer requests: what becomes of each.

use super::{
    access::{Closing, listed, rejects},
    condition::{Condition, ConditionContext},
    converted_config::Fields,
    headers,
    redirects::{answer, answers, redirects_some},
    report::ImportReport,
    template::ServerVariables,
    tree::{Directive, Scope},
};
use ipnet::IpNet;
use serde_json::{Value, json};

/// An `if` whose requests get a response of their own.
#[derive(Clone, Debug)]
pub(super) struct Branch<'a> {
    pub directive: &'a Directive,
    pub condition: Condition,
    /// The action of its route.
    pub fields: Fields,
    /// Its requests get no error.
    pub lets_in: bool,
    /// An `if` before it closes its route.
    pub is_closed: bool,
}

/// All that the `if` blocks before a path's own action do.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches<'a> {
    pub all: Vec<Branch<'a>>,
    pub closings: Vec<Closing<'a>>,
    pub deny: Vec<IpNet>,
    pub allow: Option<Vec<IpNet>>,
}

/// Where `if` blocks are, and what they are read with.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchContext<'a, 's> {
    pub scope: &'s Scope<'a>,
    pub maps: &'s [&'a Directive],
    pub variables: &'s ServerVariables<'a>,
}

impl<'a> Branches<'a> {
    /// Reads the blocks of `block` that are asked before its own answer, behind those that are
    /// already here. `is_meant` leaves out those that are converted otherwise.
    pub(super) fn read(
        &mut self,
        block: &'a Directive,
        context: BranchContext<'a, '_>,
        is_meant: impl Fn(&Directive) -> bool,
        report: &mut ImportReport,
    ) {
        let reached = block.inner().iter().take_while(|directive| !answers(directive));
        let ifs = reached.filter(|directive| directive.name == "if" && is_meant(directive));
        let may_answer = |inner: &Directive| answers(inner) || redirects_some(inner);
        for directive in ifs.filter(|block| block.inner().iter().any(may_answer)) {
            if let Err(why) = self.add(directive, context, report) {
                report.take_all(directive);
                self.closings.push(Closing { directive, why });
            }
        }
    }

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

        let conditions = ConditionContext { maps: context.maps, variables: context.variables };
        let condition = Condition::read(&directive.args, conditions)?;
        let answer_of = directive.inner().iter().find(|inner| answers(inner));
        let Some(answer_of) = answer_of else {
            return Err("it redirects some paths only".into());
        };

        let is_rejection = rejects(answer_of);
        match condition {
            Condition::Always(false) => {
                report.take_all(directive);
                return Ok(());
            }
            Condition::Clients { networks, is_negated } if is_rejection => {
                self.restrict(networks, is_negated)?;
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

        if let Condition::Request { test: super::condition::Test::Query(name, _), .. } = &condition
        {
            let why = format!("the case of `{name}` matters here, and its value is decoded");
            report.note(directive, why);
        }

        report.take(directive);
        let scope = context.scope.within(directive);
        let mut fields = answer(directive, &scope, context.variables, report).unwrap_or_default();
        headers::to_client(&scope, context.variables, &mut fields, report);
        let is_closed = !self.closings.is_empty();
        let lets_in = !is_rejection;
        self.all.push(Branch { directive, condition, fields, lets_in, is_closed });
        Ok(())
    }

    fn restrict(&mut self, networks: Vec<IpNet>, is_negated: bool) -> Result<(), String> {
        if !is_negated {
            self.deny.extend(networks);
        } else if self.allow.is_none() {
            self.allow = Some(networks);
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
        if let Value::Array(more) = listed(&self.deny) {
            denied.extend(more.into_iter().filter(|one| !denied.contains(one)).collect::<Vec<_>>());
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
                access.set("allow", listed(allow));
            }
        }

        fields.set("access", access);
        if is_twofold {
            return Err("two lists of allowed clients do not join".into());
        }
        Ok(())
    }
}

/// Returns the file of `if (-f FILE)`, which nginx looks for, as for a page during maintenance.
fn existing_file(directive: &Directive) -> Option<&str> {
    let is_test = matches!(directive.arg(0), "(-f" | "(-e" | "(-d");
    let file = directive.args.get(1)?;
    is_test.then(|| file.strip_suffix(')').unwrap_or(file))
}
