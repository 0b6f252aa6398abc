//! The routes of a server.

use super::{
    actions::{Conditions, Fallback, fallback},
    branches::{BranchContext, Branches},
    converted_config::Item,
    files::Files,
    limits::Zones,
    locations::{self, Kind},
    order::{Matched, ordered},
    program::Used,
    redirects::{
        Answer, NOT_CONVERTED, answer, answers, is_by_regex, is_path_test, redirected, redirects,
        redirects_some, respond,
    },
    report::ImportReport,
    servers::{Share, host_condition},
    sites::OwnRoute,
    template::ServerVariables,
    tree::{Directive, Scope, Tree},
    upstreams::Upstreams,
};
use serde_json::{Value, json};

/// The largest body of a request without a limit of its own: what nginx allows.
pub(super) const USUAL_BODY: u64 = 1 << 20;

/// The parts of the file that routes are made of, and the routes.
#[derive(Debug)]
pub(super) struct Routes<'a, 's> {
    pub http: &'a Directive,
    pub tree: &'s Tree,
    pub files: &'s Files,
    /// The `map` and `geo` blocks.
    pub maps: &'s [&'a Directive],
    pub zones: Zones<'a>,
    pub upstreams: Upstreams<'a>,
    /// The numbers of listeners and servers in the file.
    pub listeners: usize,
    pub servers: usize,
    pub items: Vec<Item>,
}

/// A server with its share of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server<'a, 's> {
    pub block: &'a Directive,
    pub variables: &'s ServerVariables<'a>,
    /// The beginning of its routes' names.
    pub name: &'s str,
    pub share: &'s Share,
    /// The hosts of the other servers at the same listeners.
    pub others: &'s [String],
}

/// The paths of a route, with what becomes of their requests.
#[derive(Debug)]
pub(super) struct Site {
    /// The name of its route.
    pub label: String,
    /// A key of `match` and its value.
    pub path: (&'static str, Value),
    pub item: Item,
}

/// The match of every path.
fn any_path() -> (&'static str, Value) {
    ("path_prefix", json!("/"))
}

/// Returns the directive for the methods by which nginx serves no files, as if it were in a block.
fn other_methods(server: &Directive) -> Directive {
    let directive = |name: &str, args: &[&str], block| Directive {
        name: name.to_owned(),
        args: args.iter().copied().map(str::to_owned).collect(),
        block,
        ..server.without_block()
    };
    let condition = ["($request_method", "!~", "^(GET|HEAD|POST)$)"];
    let answer = directive("return", &["405"], None);
    let test = directive("if", &condition, Some(vec![answer]));
    directive("server", &[], Some(vec![test]))
}

impl<'a> Routes<'a, '_> {
    /// Adds the routes of a server for one share of its requests.
    pub(super) fn add(&mut self, server: Server<'a, '_>, report: &mut ImportReport) {
        let begin = self.items.len();
        let scope = Scope(vec![self.http, server.block]);

        let mut branches = Branches::of(server.block);
        let context = BranchContext { scope: &scope, maps: self.maps, variables: server.variables };
        let is_meant =
            |directive: &Directive| host_condition(directive).is_none() && !is_path_test(directive);
        branches.read(server.block, context, is_meant, report);

        let mut rest = server.share.clone();
        self.hosts(server, &scope, &mut rest, &branches, report);
        self.rest(Server { share: &rest, ..server }, &scope, &branches, report);

        self.join_equal(begin);
    }

    /// Adds the routes of the hosts that have no answer of their own.
    fn rest(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        branches: &Branches<'a>,
        report: &mut ImportReport,
    ) {
        let all = redirects(server.block);

        if !server.share.is_empty() {
            let first = redirected(&all, "/", scope, server.variables, report);
            self.answered(server, scope, first, branches, report);
        }

        if let Some(fields) = answer(server.block, scope, server.variables, report) {
            let name = server.block.inner().iter().find(|directive| answers(directive));
            let name = name.map_or("return", |directive| directive.name.as_str());
            for location in server.block.all("location") {
                // One line for all of it.
                report.take_all(location);
                let why = format!("nothing comes here: the server's `{name}` answers everything");
                report.note(location, why);
            }
            if !server.share.is_empty() {
                let label = "all".to_owned();
                let whole = Answer { directive: server.block, label, path: any_path(), fields };
                self.answered(server, scope, vec![whole], branches, report);
            }
            return;
        }

        if server.share.is_empty() {
            server.block.all("location").for_each(|location| report.take_all(location));
            return;
        }

        let locations = locations::read(server.block, scope, report);
        for matched in &ordered(&locations, scope, is_by_regex(&all, &locations), report) {
            self.location(server, matched, &all, branches, report);
        }

        let has_rest =
            locations.iter().any(|location| matches!(location.kind, Kind::Prefix("/", _)));
        if has_rest {
            return;
        }

        if matches!(fallback(server.block, server.block), Some(Fallback::Named { .. })) {
            let whole = Matched::of_server(server.block);
            self.location(server, &whole, &all, branches, report);
        } else {
            self.paths_without_location(server, scope, branches, report);
        }
    }

    fn paths_without_location(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        branches: &Branches<'a>,
        report: &mut ImportReport,
    ) {
        let label = "other".to_owned();
        let origin = format!("{}: no location takes these paths", self.position(server.block));

        // nginx looks for files below the root.
        let root = scope.find("root");
        let status = if root.is_some() { NOT_CONVERTED } else { 404 };
        let site = Site { label, path: any_path(), item: Item::default() };

        // nginx serves files by these methods alone.
        let other = other_methods(server.block);
        let mut branches = branches.clone();
        let context = BranchContext { scope, maps: self.maps, variables: server.variables };
        branches.read(&other, context, |_| true, report);

        self.routes(server, &site, &branches, &Used::default(), report, |routes, state, name, report| {
            if let Some(root) = root {
                let why = format!(
                    "paths without a location are files, which are not served. Their requests get {NOT_CONVERTED}"
                );
                report.block(root, why, Some(name));
            }
            let mut fields = respond(json!({ "status": status }));
            let (more, closings) = routes.conditions(
                Conditions { scope, state, outer: scope, variables: server.variables, route: name },
                &mut fields,
                report,
            );
            let comments = [origin.clone()].into_iter().chain(more).collect();
            OwnRoute { item: Item { comments, fields }, closings }
        });
    }

    /// Adds a route for each host that has its own answer, and takes these hosts out of `rest`.
    fn hosts(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        rest: &mut Share,
        branches: &Branches<'a>,
        report: &mut ImportReport,
    ) {
        let mut before = Vec::new();
        for directive in server.block.inner().iter().take_while(|directive| !answers(directive)) {
            if redirects_some(directive) || is_path_test(directive) {
                before.push(directive);
            }

            let Some(condition) = host_condition(directive) else { continue };
            report.take(directive);
            let inner = scope.within(directive);
            let Some(fields) = answer(directive, &inner, server.variables, report) else {
                continue;
            };

            for (host, share) in rest.split_off(&condition, server.others) {
                let matching = Value::from(share.matching(any_path(), self.listeners));
                // A server may get the same host in two shares.
                if self.items.iter().any(|item| item.fields.0.get("match") == Some(&matching)) {
                    continue;
                }

                let server = Server { share: &share, ..server };
                let mut answers = redirected(&before, "/", scope, server.variables, report);
                let fields = fields.clone();
                answers.push(Answer { directive, label: host, path: any_path(), fields });
                self.answered(server, &inner, answers, branches, report);
            }
        }
    }

    /// Adds the routes of answers that come before limits and access are asked.
    pub(super) fn answered(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        answers: Vec<Answer<'_>>,
        branches: &Branches<'a>,
        report: &mut ImportReport,
    ) {
        for Answer { directive, label, path, mut fields } in answers {
            super::headers::to_client(scope, server.variables, &mut fields, report);
            let comments = vec![self.position(directive)];
            let site = Site { label, path, item: Item { comments, fields } };
            self.site(server, &site, branches, report);
        }
    }
}
