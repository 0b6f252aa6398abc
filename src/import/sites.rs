//! Routes as they are written: those of a path with its conditions, and those that are closed.

use super::{
    access::Closing,
    branches::Branches,
    condition::{ANY_SUBJECT, ConditionContext, Test, Values},
    converted_config::{Fields, Item, inline},
    program::{State, Used},
    redirects::respond,
    report::ImportReport,
    routes::{Routes, Server, Site},
    tree::Directive,
};
use serde_json::{Map, Value, json};

/// The keys that a closed route keeps: all but those of its action.
const KEPT: [&str; 6] = ["access", "auth", "flow", "reject", "body_limit", "response_headers"];

/// The route of a path's own action, and what closes it.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnRoute {
    pub item: Item,
    pub closings: Vec<Closing>,
}

impl<'a> Routes<'a, '_> {
    /// Adds the routes of some paths whose own action is the same for all requests.
    pub(super) fn site(
        &mut self,
        server: Server<'a, '_>,
        site: &Site,
        branches: &Branches<'a>,
        report: &mut ImportReport,
    ) {
        let own = OwnRoute { item: site.item.clone(), closings: Vec::new() };
        self.routes(server, site, branches, &Used::default(), report, |_, _, _, _| own.clone());
    }

    /// Adds the routes of some paths: one for each condition that decides otherwise, and the paths'
    /// own. With closings the latter is closed. `own` makes the route of a name for requests in a
    /// state, of which it uses the variables in `used`.
    pub(super) fn routes(
        &mut self,
        server: Server<'_, '_>,
        site: &Site,
        branches: &Branches<'_>,
        used: &Used,
        report: &mut ImportReport,
        own: impl Fn(&mut Self, &State, &str, &mut ImportReport) -> OwnRoute,
    ) {
        let Site { label, path, .. } = site;
        let conditions = ConditionContext { maps: self.maps, variables: server.variables };
        let (cases, closings) = branches.cases(used, conditions, report);

        // nginx answers for an `if` before it asks for `allow` and `deny`.
        let mut restriction = Fields::default();
        drop(branches.restrict_route(&mut restriction));

        for case in cases {
            let state = &case.decision.state;
            if let Some(index) = case.decision.answer {
                let branch = &branches.all[index];
                let mut fields = branches.answer(index, state, server.variables, report);
                fields.append(restriction.clone());
                let origin = self.position(branch.directive);
                // The server's own methods are in no line of the file.
                let origin = if branch.directive.id == server.block.id {
                    format!(
                        "{}: by other methods, nginx serves no files",
                        self.position(server.block)
                    )
                } else {
                    origin
                };
                let mut item = Item { comments: vec![origin], fields };
                let label = format!("{label}-{}", branch.label);
                if branch.is_closed && branch.lets_in {
                    let name = self.name(server, &label);
                    self.close(&mut item, &branches.closings, &name, report);
                }
                self.push(server, &label, path, &case.tests, item);
                continue;
            }

            let name = self.name(server, label);
            let OwnRoute { mut item, closings: more } = own(self, state, &name, report);
            let mut closings: Vec<_> = closings.iter().cloned().chain(more).collect();
            if let Err(why) = branches.restrict_route(&mut item.fields) {
                closings.push(Closing::new(server.block, why));
            }
            self.close(&mut item, &closings, &name, report);
            self.push(server, label, path, &case.tests, item);
        }
    }

    /// Closes a route: its requests get 403, and comments say what it would do.
    fn close(&self, item: &mut Item, closings: &[Closing], name: &str, report: &mut ImportReport) {
        let status = item.fields.0.get("respond").and_then(|respond| respond["status"].as_u64());
        let is_closed = status.is_some_and(|status| status >= 400);
        if closings.is_empty() {
            return;
        }

        for Closing { directive, why } in closings {
            if is_closed {
                report.take_all(directive);
            } else {
                let why =
                    format!("{why}. Closed: requests get 403 until you write this restriction");
                report.block(directive, why, Some(name));
                item.comments.push(format!(
                    "closed, because `{}` does not convert",
                    self.position(directive)
                ));
            }
        }
        if is_closed {
            return;
        }

        let (kept, left): (Map<_, _>, Map<_, _>) = core::mem::take(&mut item.fields.0)
            .into_iter()
            .partition(|(key, _)| KEPT.contains(&key.as_str()));
        item.comments.push("once it has this restriction, write in place of `respond`:".into());
        let lines = left.iter().map(|(key, value)| format!("  {key}: {}", inline(value)));
        item.comments.extend(lines);
        item.fields = respond(json!({ "status": 403 }));
        item.fields.append(Fields(kept));
    }

    /// Returns where a block is, with its words.
    pub(super) fn position(&self, block: &Directive) -> String {
        let file = self.tree.files.get(block.file).map_or("", String::as_str);
        format!("{file}:{} {}", block.line, block.words())
    }

    fn push(
        &mut self,
        server: Server<'_, '_>,
        label: &str,
        path: &(&'static str, Value),
        tests: &[Test],
        item: Item,
    ) {
        let name = self.name(server, label);
        let mut matching = server.share.matching(path.clone(), self.listeners);

        let mut fields = Fields::default();
        let mut query = Fields::default();
        for test in tests {
            match test {
                Test::Method(methods) => matching.set("method", one_or_all(methods)),
                Test::Header(name, values) => fields.set(name, values.json()),
                Test::Query(name, values) => query.set(name, values.json()),
                Test::WholeQuery(values) => matching.set("query_regex", json!(values.regex())),
                Test::Certificate(Values::Match(regex)) if regex == ANY_SUBJECT => {
                    matching.set("client_cert", json!(true));
                }
                Test::Certificate(values) => {
                    matching.set("client_cert", json!({ "subject": values.json() }));
                }
            }
        }

        for (key, fields) in [("header", fields), ("query", query)] {
            if !fields.is_empty() {
                matching.set(key, fields);
            }
        }

        let mut head = Fields::default();
        head.set("match", matching);
        head.append(item.fields);
        self.items.push(Item { fields: head.named(&name), ..item });
    }

    /// Joins the routes from `begin` on that differ in their paths alone: those of an `if` of the
    /// server, which is asked before the locations.
    pub(super) fn join_equal(&mut self, begin: usize) {
        let mut joined: Vec<Item> = Vec::new();
        for item in self.items.split_off(begin.min(self.items.len())) {
            let has_tests = item.fields.0.get("match").is_some_and(|matching| {
                ["method", "header", "query", "query_regex"]
                    .iter()
                    .any(|key| matching.get(key).is_some())
            });
            let is_own =
                item.fields.0.contains_key("upstream") || item.fields.0.contains_key("flow");
            let same = joined.iter_mut().find(|other| is_joinable(other, &item));
            match same.filter(|_| has_tests && !is_own) {
                Some(other) => add_path(other, &item),
                None => joined.push(item),
            }
        }

        self.items.append(&mut joined);
    }

    /// Returns a name for the next route that no other has.
    pub(super) fn name(&self, server: Server<'_, '_>, label: &str) -> String {
        let name =
            if self.servers > 1 { format!("{}/{label}", server.name) } else { label.to_owned() };
        let name: String = name.chars().take(56).collect();
        let is_taken = |name: &String| self.items.iter().any(|item| item.text("name") == name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = core::iter::once(name.clone()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or(name)
    }
}

/// The keys of a match for a path, of which it has one.
const PATHS: [&str; 3] = ["path", "path_prefix", "path_regex"];

/// Returns the key of a route's path.
fn path_key(item: &Item) -> Option<&'static str> {
    let matching = item.fields.0.get("match")?;
    PATHS.into_iter().find(|key| matching.get(key).is_some())
}

/// Reports whether two routes differ in their names and paths alone.
fn is_joinable(one: &Item, other: &Item) -> bool {
    let stripped = |item: &Item| {
        let mut fields = item.fields.0.clone();
        drop(fields.remove("name"));
        if let Some(Value::Object(matching)) = fields.get_mut("match") {
            for key in PATHS {
                drop(matching.remove(key));
            }
        }
        fields
    };

    path_key(one) == path_key(other)
        && one.comments == other.comments
        && stripped(one) == stripped(other)
}

fn add_path(item: &mut Item, other: &Item) {
    let Some(key) = path_key(other) else { return };
    let more = other.fields.0.get("match").and_then(|matching| matching.get(key)).cloned();
    let slot = item.fields.0.get_mut("match").and_then(|matching| matching.get_mut(key));
    let (Some(more), Some(slot)) = (more, slot) else { return };

    let listed = |value: Value| value.as_array().cloned().unwrap_or_else(|| vec![value]);
    let mut all = listed(slot.take());
    let new: Vec<_> = listed(more).into_iter().filter(|path| !all.contains(path)).collect();
    all.extend(new);
    *slot = if let [one] = &all[..] { one.clone() } else { Value::Array(all) };
}

fn one_or_all(all: &[String]) -> Value {
    match all {
        [one] => json!(one),
        all => json!(all),
    }
}
