//! The `set` and `if` directives of a server and a location, run in turn as nginx runs them.
//!
//! For every set of tests that a request may pass, the program is run. It finds the `if` that answers,
//! or the values of the variables and the `if` whose directives hold once the location acts. So a
//! variable that an `if` changes becomes a route for each of its values.

use super::{
    condition::{Condition, ConditionContext, Question, Test},
    redirects::{answers, whole_path},
    template::{Piece, joined, pieces},
    tree::Directive,
    variants::{MOST_TESTS, Variant, possible_sets, variants},
};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a request when the action of its path begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    /// The values of the variables that the action uses.
    pub values: BTreeMap<String, String>,
    /// The `if` whose directives hold in each location, by its index among all directives.
    within: Vec<Option<usize>>,
    /// A `break` comes before the location's own `return`.
    has_ended: bool,
}

/// The action for requests that pass some tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The `if` that answers, by its index; `None` is the path's own action.
    pub answer: Option<usize>,
    pub state: State,
}

pub(super) type Case = Variant<Decision>;

/// A directive whose condition decides, and that is not clear.
#[derive(Clone, Debug)]
pub(super) struct Unclear<'a> {
    pub directive: &'a Directive,
    pub why: String,
}

#[derive(Clone, Debug)]
enum Step<'a> {
    Set(&'a Directive),
    If(If<'a>),
    /// The directives of a location begin.
    Location,
    /// Nothing behind it in the same block is run.
    End,
}

#[derive(Clone, Debug)]
struct If<'a> {
    directive: &'a Directive,
    /// Those behind it that do the same.
    same: Vec<&'a Directive>,
    condition: Asked<'a>,
    /// Its index, if it answers.
    answer: Option<usize>,
    /// It is in a location, and not in its server.
    is_inner: bool,
}

#[derive(Clone, Debug)]
enum Asked<'a> {
    /// A question about a variable that `set` may have given a value.
    Variable(Question<'a>),
    Request(Condition),
    Unclear(String),
}

/// The directives of a server and a location that decide for requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Program<'a> {
    steps: Vec<Step<'a>>,
    /// The variables that a `set` of the server or of one of its locations gives a value.
    variables: BTreeSet<String>,
}

/// The variables that an action uses, and whether the directives of an `if` may change it.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    variables: BTreeSet<String>,
    /// An `if` of the location whose condition holds does not inherit it.
    has_try_files: bool,
}

/// Directives that convert with their variables.
const USERS: [&str; 7] = [
    "add_header",
    "grpc_pass",
    "grpc_set_header",
    "proxy_pass",
    "proxy_set_header",
    "return",
    "rewrite",
];

/// Directives of an `if` that hold in place of its location's.
const CHANGES: [&str; 8] = [
    "add_header",
    "fastcgi_pass",
    "grpc_pass",
    "memcached_pass",
    "proxy_pass",
    "rewrite",
    "scgi_pass",
    "uwsgi_pass",
];

/// Directives of an `if` without which requests would get something else than a changed header.
const DECIDING: [&str; 6] =
    ["fastcgi_pass", "grpc_pass", "memcached_pass", "proxy_pass", "scgi_pass", "uwsgi_pass"];

impl Used {
    /// Gathers the variables of a location and the blocks around it.
    pub(super) fn by<'b>(blocks: impl Iterator<Item = &'b Directive>) -> Self {
        let mut used = Self::default();
        for block in blocks {
            used.add(block);
            used.has_try_files |= block.all("try_files").next().is_some();
        }
        used
    }

    /// Reports whether an action may be another one where an `if` holds.
    fn is_changed_by(&self, asked: &If<'_>) -> bool {
        asked.is_inner && (self.has_try_files || is_change(asked.directive))
    }

    fn add(&mut self, block: &Directive) {
        for inner in block.inner() {
            if USERS.contains(&inner.name.as_str()) {
                self.variables.extend(variables_of(inner));
            } else if inner.name == "if" && !inner.inner().iter().any(answers) {
                self.add(inner);
            }
        }
    }
}

impl<'a> Program<'a> {
    /// Returns the program of a server, without its directives.
    pub(super) fn of(server: &Directive) -> Self {
        let mut program = Self::default();
        set_within(server, &mut program.variables);
        program
    }

    pub(super) fn set(&mut self, directive: &'a Directive) {
        self.steps.push(Step::Set(directive));
    }

    pub(super) fn end(&mut self) {
        self.steps.push(Step::End);
    }

    /// Adds an `if`. `answer` is its index, if it answers.
    pub(super) fn ask(
        &mut self,
        directive: &'a Directive,
        question: Result<Question<'a>, String>,
        context: ConditionContext<'_, '_>,
        answer: Option<usize>,
    ) {
        let condition = match question {
            Ok(question) if self.variables.contains(question.name) => Asked::Variable(question),
            Ok(question) => {
                context.condition(&question).map_or_else(Asked::Unclear, Asked::Request)
            }
            Err(why) => Asked::Unclear(why),
        };
        // Lists of clients that are kept out are often one `if` for each.
        if let Some(Step::If(last)) = self.steps.last_mut()
            && let (Asked::Request(one), Asked::Request(other)) = (&last.condition, &condition)
            && last.answer.is_some() == answer.is_some()
            && does_same(last.directive, directive)
            && let Some(either) = one.either(other)
        {
            last.condition = Asked::Request(either);
            last.same.push(directive);
            return;
        }

        let is_inner = self.steps.iter().any(|step| matches!(step, Step::Location));
        let same = Vec::new();
        self.steps.push(Step::If(If { directive, same, condition, answer, is_inner }));
    }

    /// Begins the directives of a location. The directives of other locations are not run before it,
    /// because no `rewrite` sends requests from one route to another.
    pub(super) fn enter(&mut self) {
        self.steps.push(Step::Location);
    }

    /// Reports whether `set` gives this variable a value.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.variables.contains(name)
    }

    /// Returns what happens to requests, in the order of the file. `answered` gives the variables that
    /// the answer of an `if` uses.
    ///
    /// # Errors
    /// An `if` is not clear, or no routes decide the same; then the `if` is the last one.
    pub(super) fn cases(
        &self,
        used: &Used,
        context: ConditionContext<'_, '_>,
        answered: impl Fn(usize) -> BTreeSet<String>,
    ) -> Result<Vec<Case>, Unclear<'a>> {
        let steps = self.needed(used, &answered);
        let last = steps.iter().rev().find_map(|step| match step {
            Step::If(asked) => Some(asked.directive),
            Step::Set(_) | Step::Location | Step::End => None,
        });

        // Tests are found while the program runs, because a variable may stand for a part of the request.
        let mut tests = Vec::new();
        let decisions = loop {
            let run =
                Run { steps: &steps, variables: &self.variables, tests: &tests, used, context };
            let sets = possible_sets(&tests).into_iter();
            let found = sets.map(|set| Ok((set, run.decide(set, &answered)?)));
            match found.collect::<Result<BTreeMap<_, _>, _>>() {
                Ok(found) => break found,
                Err(Stop::Unclear(unclear)) => return Err(unclear),
                Err(Stop::Test(directive, test)) => {
                    if tests.len() == MOST_TESTS {
                        let why = format!("a path has more than {MOST_TESTS} conditions");
                        return Err(Unclear { directive, why });
                    }
                    tests.push(test);
                }
            }
        };

        let decide = |set: u32| decisions.get(&set);
        let early = |decision: Option<&Decision>| {
            decision.and_then(|decision| decision.answer).unwrap_or(usize::MAX)
        };
        match variants(&tests, decide, |decision| early(*decision)) {
            Ok(found) => Ok(found
                .into_iter()
                .filter_map(|Variant { tests, decision }| {
                    Some(Case { tests, decision: decision?.clone() })
                })
                .collect()),
            Err(why) => match last {
                Some(directive) => Err(Unclear { directive, why }),
                // Without a condition there is one route.
                None => Ok(Vec::new()),
            },
        }
    }

    /// Returns the directives that were run for the action or for an answer.
    pub(super) fn taken(
        &self,
        used: &Used,
        answered: impl Fn(usize) -> BTreeSet<String>,
    ) -> Vec<&'a Directive> {
        let mut all = Vec::new();
        for step in self.needed(used, &answered) {
            match step {
                Step::Set(directive) => all.push(*directive),
                Step::If(asked) if matches!(asked.condition, Asked::Unclear(_)) => {}
                Step::If(asked) => {
                    all.push(asked.directive);
                    let inner = asked.directive.inner().iter();
                    all.extend(
                        inner.filter(|inner| matches!(inner.name.as_str(), "set" | "break")),
                    );
                    for block in &asked.same {
                        all.extend([*block].into_iter().chain(block.inner()));
                    }
                }
                Step::Location | Step::End => {}
            }
        }
        all
    }

    /// Returns the steps on which an answer or the action depends.
    fn needed(&self, used: &Used, answered: &impl Fn(usize) -> BTreeSet<String>) -> Vec<&Step<'a>> {
        let mut needed = used.variables.clone();
        let is_needed = |step: &Step<'_>, needed: &BTreeSet<String>| match step {
            Step::Set(directive) => name_of(directive).is_some_and(|name| needed.contains(name)),
            Step::If(asked) => {
                let mut names = BTreeSet::new();
                set_within(asked.directive, &mut names);
                let has_break = asked.directive.inner().iter().any(ends);
                asked.answer.is_some()
                    || has_break
                    || used.is_changed_by(asked)
                    || !names.is_disjoint(needed)
            }
            Step::Location | Step::End => true,
        };

        // A value may be made of another variable, and an `if` may ask for one.
        loop {
            let before = needed.clone();
            for step in self.steps.iter().filter(|step| is_needed(step, &before)) {
                match step {
                    Step::Set(directive) => needed.extend(variables_of(directive)),
                    Step::If(asked) => {
                        if let Asked::Variable(question) = &asked.condition {
                            needed.insert(question.name.to_owned());
                        }
                        needed.extend(asked.answer.into_iter().flat_map(answered));
                        needed.extend(asked.directive.all("set").flat_map(variables_of));
                    }
                    Step::Location | Step::End => {}
                }
            }
            if needed == before {
                return self.steps.iter().filter(|step| is_needed(step, &needed)).collect();
            }
        }
    }
}

/// A program with the tests that requests may pass.
#[derive(Clone, Copy, Debug)]
struct Run<'a, 's, 'c> {
    steps: &'s [&'s Step<'a>],
    variables: &'s BTreeSet<String>,
    tests: &'s [Test],
    used: &'s Used,
    context: ConditionContext<'c, 's>,
}

/// Values by name; `None` is not known.
type Known = BTreeMap<String, Option<String>>;

/// The reason why a run ends without a decision.
#[derive(Debug)]
enum Stop<'a> {
    /// An `if` asks for a test that is not in the list.
    Test(&'a Directive, Test),
    Unclear(Unclear<'a>),
}

impl<'a> Run<'a, '_, '_> {
    fn decide(
        &self,
        set: u32,
        answered: impl Fn(usize) -> BTreeSet<String>,
    ) -> Result<Decision, Stop<'a>> {
        // A variable without a value is empty.
        let empty = |name: &String| (name.clone(), Some(String::new()));
        let mut known: Known = self.variables.iter().map(empty).collect();
        let mut within = Vec::new();
        let mut has_ended = false;

        for step in self.steps {
            match step {
                Step::Location => {
                    within.push(None);
                    has_ended = false;
                }
                _ if has_ended => {}
                Step::End => has_ended = true,
                Step::Set(directive) => assign(&mut known, directive),
                Step::If(asked) => match self.holds(asked, set, &known) {
                    Ok(false) => {}
                    Ok(true) => {
                        for inner in asked.directive.all("set") {
                            assign(&mut known, inner);
                        }
                        if let Some(index) = asked.answer {
                            let values = project(&known, &answered(index));
                            let state = State { values, ..State::default() };
                            return Ok(Decision { answer: Some(index), state });
                        }
                        has_ended = asked.directive.inner().iter().any(ends);
                        if let Some(within) = within.last_mut() {
                            let is_changed = self.used.is_changed_by(asked);
                            *within = is_changed.then_some(asked.directive.id);
                        }
                    }
                    Err(Stop::Unclear(_)) if !is_deciding(asked.directive) => {
                        let mut names = BTreeSet::new();
                        set_within(asked.directive, &mut names);
                        forget(&mut known, &names);
                    }
                    Err(stop) => return Err(stop),
                },
            }
        }

        let values = project(&known, &self.used.variables);
        Ok(Decision { answer: None, state: State { values, within, has_ended } })
    }

    fn holds(&self, asked: &If<'a>, set: u32, known: &Known) -> Result<bool, Stop<'a>> {
        let directive = asked.directive;
        let unclear = |why: String| Stop::Unclear(Unclear { directive, why });

        let condition = match &asked.condition {
            Asked::Request(condition) => condition.clone(),
            Asked::Unclear(why) => return Err(unclear(why.clone())),
            Asked::Variable(question) => {
                let value = known.get(question.name).and_then(Option::as_deref);
                let unknown = || unclear(format!("the value of ${} is not clear", question.name));
                let value = value.ok_or_else(unknown)?;
                match one_variable(value) {
                    Some(name) => self.context.condition(&question.about(name)).map_err(unclear)?,
                    None if value.contains('$') => return Err(unknown()),
                    None => return Ok(question.holds(value)),
                }
            }
        };

        match condition {
            Condition::Always(value) => Ok(value),
            Condition::Request { test, is_negated } => {
                let at = self.tests.iter().position(|known| *known == test);
                let at = at.ok_or(Stop::Test(directive, test))?;
                Ok((set >> at & 1 == 1) != is_negated)
            }
            Condition::Clients { .. } => Err(unclear("no route is for some addresses only".into())),
        }
    }
}

/// Returns the name of the variable that is a whole value.
fn one_variable(value: &str) -> Option<&str> {
    let name = value.strip_prefix("${")?.strip_suffix('}')?;
    (!name.contains('$')).then_some(name)
}

fn forget(known: &mut Known, names: &BTreeSet<String>) {
    for name in names {
        known.insert(name.clone(), None);
    }
}

fn assign(known: &mut Known, directive: &Directive) {
    let Some(name) = name_of(directive) else { return };
    let Ok(all) = pieces(directive.arg(1)) else {
        known.insert(name.to_owned(), None);
        return;
    };

    let value = all.into_iter().map(|piece| match piece {
        Piece::Text(text) => Some(text.to_owned()),
        // A group is one of the last expression that matched.
        Piece::Variable(name) if name.starts_with(|sign: char| sign.is_ascii_digit()) => None,
        Piece::Variable(name) => match known.get(name) {
            Some(value) => value.clone(),
            None => Some(format!("${{{name}}}")),
        },
    });
    let value = value.collect::<Option<String>>();
    known.insert(name.to_owned(), value);
}

fn project(known: &Known, names: &BTreeSet<String>) -> BTreeMap<String, String> {
    let value = |name: &String| Some((name.clone(), known.get(name)?.clone()?));
    names.iter().filter_map(value).collect()
}

/// Returns the name that a `set` gives a value.
fn name_of(set: &Directive) -> Option<&str> {
    set.arg(0).strip_prefix('$').filter(|name| !name.is_empty() && set.args.len() == 2)
}

fn set_within(block: &Directive, names: &mut BTreeSet<String>) {
    for inner in block.inner() {
        if inner.name == "set" {
            names.extend(name_of(inner).map(str::to_owned));
        }
        set_within(inner, names);
    }
}

/// Reports whether nginx runs no directive behind this one.
fn ends(directive: &Directive) -> bool {
    let is_final = matches!(directive.arg(2), "break" | "last");
    directive.name == "break"
        || (directive.name == "rewrite" && is_final && whole_path(directive.arg(0)).is_some())
}

/// Reports whether two blocks have the same directives.
fn does_same(one: &Directive, other: &Directive) -> bool {
    let is_same = |(one, other): (&Directive, &Directive)| {
        one.name == other.name && one.args == other.args && does_same(one, other)
    };
    one.inner().len() == other.inner().len() && one.inner().iter().zip(other.inner()).all(is_same)
}

/// Reports whether an `if` has directives that hold in place of its location's.
fn is_change(directive: &Directive) -> bool {
    directive.inner().iter().any(|inner| CHANGES.contains(&inner.name.as_str()))
}

/// Reports whether requests must not pass if it is not clear whether an `if` holds.
fn is_deciding(directive: &Directive) -> bool {
    let decides = |inner: &Directive| answers(inner) || DECIDING.contains(&inner.name.as_str());
    directive.inner().iter().any(decides)
}

/// Returns the names of the variables in the words of a directive; of a `set`, in its value.
pub(super) fn variables_of(directive: &Directive) -> BTreeSet<String> {
    let first = usize::from(directive.name == "set");
    let words = directive.args.iter().skip(first);
    let all = words.flat_map(|word| pieces(word).unwrap_or_default());
    let names = all.filter_map(|piece| match piece {
        Piece::Text(_) => None,
        Piece::Variable(name) => Some(name.to_owned()),
    });
    names.collect()
}

/// Returns a text with the values of its variables.
pub(super) fn substituted(text: &str, values: &BTreeMap<String, String>) -> String {
    let Ok(all) = pieces(text) else { return text.to_owned() };
    if !all.iter().any(|piece| matches!(piece, Piece::Variable(name) if values.contains_key(*name)))
    {
        return text.to_owned();
    }

    let mut parts = Vec::new();
    for piece in all {
        let value = match piece {
            Piece::Text(_) => None,
            Piece::Variable(name) => values.get(name).and_then(|value| pieces(value).ok()),
        };
        match value {
            Some(value) => parts.extend(value),
            None => parts.push(piece),
        }
    }
    joined(&parts)
}

impl State {
    /// Reports whether the action is that of the directives as they are written.
    pub(super) fn is_plain(&self) -> bool {
        self.values.is_empty() && self.within.iter().all(Option::is_none) && !self.has_ended
    }

    /// Returns a block as it holds in this state: with values in place of variables, and with the
    /// directives of the `if` that changes it. It has no locations but named ones.
    pub(super) fn applied(&self, block: &Directive) -> Directive {
        let is_skipped =
            |inner: &Directive| self.has_ended && block.name == "location" && answers(inner);
        let mut all = Vec::new();
        let mut change = None;
        for inner in block.inner() {
            let is_location = inner.name == "location";
            if self.within.contains(&Some(inner.id)) {
                change = Some(inner);
            } else if is_location && inner.arg(0).starts_with('@') {
                all.push(self.applied(inner));
            } else if !is_location && !is_skipped(inner) {
                all.push(self.valued(inner));
            }
        }

        if let Some(change) = change {
            let is_kept = |inner: &&Directive| !matches!(inner.name.as_str(), "set" | "break");
            let own: Vec<_> = change.inner().iter().filter(is_kept).collect();
            // An `if` does not inherit `try_files`.
            all.retain(|inner| {
                inner.name != "try_files" && own.iter().all(|other| other.name != inner.name)
            });
            all.extend(own.into_iter().map(|inner| self.valued(inner)));
        }
        Directive { block: Some(all), ..block.without_block() }
    }

    /// Returns a directive with values in place of variables. `proxy_pass` keeps them, because nginx
    /// reads its path in another way if it has one.
    fn valued(&self, directive: &Directive) -> Directive {
        let mut valued = directive.clone();
        let is_kept = matches!(directive.name.as_str(), "set" | "if" | "proxy_pass" | "grpc_pass");
        if !is_kept {
            for arg in &mut valued.args {
                *arg = substituted(arg, &self.values);
            }
        }
        valued
    }

    /// Returns the block of an `if` that answers, with values in place of variables.
    pub(super) fn answering(&self, block: &Directive) -> Directive {
        let all = block.inner().iter().map(|inner| self.valued(inner)).collect();
        Directive { block: Some(all), ..block.without_block() }
    }
}
