//! The routes of a server.

use super::{
    access::{access, no_client},
    converted_config::{Fields, Item},
    guards::is_rejecting,
    headers,
    limits::Zones,
    locations::{self, Kind, Location, label},
    matched::Matched,
    numbers::{size, sized},
    order::ordered,
    proxied::{LocationContext, proxied},
    redirects::{Answer, behind, is_by_regex, redirected, redirects},
    report::ImportReport,
    returns::{NOT_CONVERTED, answer, answers, redirect, redirects_some, respond},
    scope::Scope,
    servers::{Share, redirected_host},
    template::ServerVariables,
    tree::{Directive, Tree},
    upstreams::Upstreams,
};
use serde_json::{Value, json};
use std::path::Path;

/// The largest body of a request without a limit of its own: what nginx allows.
pub(super) const USUAL_BODY: u64 = 1 << 20;

/// Why a `rewrite` in an exact location or a regular expression does not convert.
const PARTLY: &str = "which of the location's paths it takes is not clear";

/// Any size at all.
const NO_LIMIT: &str = "1EiB";

/// What routes are made of, and those that are made.
#[derive(Debug)]
pub(super) struct Routes<'a, 's> {
    pub http: &'a Directive,
    pub tree: &'s Tree,
    pub folder: &'s Path,
    pub zones: Zones<'a>,
    pub upstreams: Upstreams<'a>,
    /// How many listeners and servers the file has.
    pub listeners: usize,
    pub servers: usize,
    pub items: Vec<Item>,
}

/// A server with its share of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server<'a, 's> {
    pub block: &'a Directive,
    pub variables: &'s ServerVariables<'a>,
    /// What its routes are called by.
    pub name: &'s str,
    pub share: &'s Share,
    /// The hosts of the other servers at the same listeners.
    pub others: &'s [String],
}

impl<'a> Routes<'a, '_> {
    /// Adds the routes of a server for one share of its requests.
    pub(super) fn add(&mut self, server: Server<'a, '_>, report: &mut ImportReport) {
        let scope = Scope(vec![self.http, server.block]);
        let any = ("path_prefix", json!("/"));
        let mut rest = server.share.clone();
        self.hosts(server, &scope, &mut rest, report);
        let server = Server { share: &rest, ..server };
        let all = redirects(server.block);
        if !rest.is_empty() {
            let first = redirected(&all, "/", server.variables, report);
            self.answered(server, &scope, first, report);
        }
        if let Some(fields) = answer(server.block, &scope, server.variables, report) {
            let name = server.block.inner().iter().find(|directive| answers(directive));
            let name = name.map_or("return", |directive| directive.name.as_str());
            for location in server.block.all("location") {
                // One line for all of it.
                report.take_all(location);
                let why = format!("nothing comes here: the server's `{name}` answers everything");
                report.note(location, why);
            }
            if !rest.is_empty() {
                let label = "all".to_owned();
                let whole = Answer { directive: server.block, label, path: any, fields };
                self.answered(server, &scope, vec![whole], report);
            }
            return;
        }
        if rest.is_empty() {
            server.block.all("location").for_each(|location| report.take_all(location));
            return;
        }
        let locations = locations::read(server.block, &scope, report);
        for matched in &ordered(&locations, &scope, is_by_regex(&all, &locations), report) {
            self.location(server, matched, &all, report);
        }
        let has_rest =
            locations.iter().any(|location| matches!(location.kind, Kind::Prefix("/", _)));
        if !has_rest {
            let mut fields = respond(json!({ "status": 404 }));
            let route = self.name(server, "other");
            self.conditions(&scope, &route, &mut fields, report);
            let comments =
                vec![format!("{}: no location takes these paths", self.position(server.block))];
            self.push(server, "other", any, Item { comments, fields });
        }
    }

    /// Adds a route for each host that has its own answer, and takes these hosts out of `rest`.
    fn hosts(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        rest: &mut Share,
        report: &mut ImportReport,
    ) {
        let any = ("path_prefix", json!("/"));
        let mut before = Vec::new();
        for directive in server.block.inner().iter().take_while(|directive| !answers(directive)) {
            if redirects_some(directive) {
                before.push(directive);
            }
            let Some(host) = redirected_host(directive) else { continue };
            let Some(share) = rest.split(host, server.others) else { continue };
            report.take(directive);
            let matching = share.matching(any.clone(), self.listeners);
            let Some(fields) = answer(directive, scope, server.variables, report) else { continue };
            // A server may get the same host in two shares.
            if self.items.iter().any(|item| item.fields.0.get("match") == Some(&matching)) {
                continue;
            }
            let server = Server { share: &share, ..server };
            let mut answers = redirected(&before, "/", server.variables, report);
            let label = host.to_owned();
            answers.push(Answer { directive, label, path: any.clone(), fields });
            self.answered(server, scope, answers, report);
        }
    }

    /// Adds the routes of answers that come before limits and access are asked.
    fn answered(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        answers: Vec<Answer<'_>>,
        report: &mut ImportReport,
    ) {
        for Answer { directive, label, path, mut fields } in answers {
            if is_rejecting(scope, report) {
                fields.set("access", no_client());
            }
            headers::to_client(scope, server.variables, &mut fields, report);
            let comments = vec![self.position(directive)];
            self.push(server, &label, path, Item { comments, fields });
        }
    }

    fn location(
        &mut self,
        server: Server<'a, '_>,
        matched: &Matched<'a>,
        first: &[&Directive],
        report: &mut ImportReport,
    ) {
        let Location { kind, block, .. } = &matched.location;
        let label = label(*kind);
        if let Some(path) = &matched.redirects {
            let comments = vec![format!("{}: adds the slash", self.position(block))];
            let fields = redirect("{path}/", 301);
            self.push(
                server,
                &format!("{label}-slash"),
                behind(first, ("path", json!(path))),
                Item { comments, fields },
            );
        }
        let mut comments = vec![self.position(block)];
        let path = behind(first, matched.path.clone());
        if matched.is_closed {
            let fields = respond(json!({ "status": 403 }));
            return self.push(server, &label, path, Item { comments, fields });
        }
        let scope = matched.location.scope(&Scope(vec![self.http, server.block]));
        if let Kind::Prefix(prefix, _) = kind
            && scope.find("internal").is_none()
        {
            let first = redirected(&redirects(block), prefix, server.variables, report);
            self.answered(server, &scope, first, report);
        }
        let route = self.name(server, &label);
        let (mut fields, is_asked) = self.action(server, &scope, &matched.location, report);
        if is_asked {
            comments.append(&mut self.conditions(&scope, &route, &mut fields, report));
        } else if is_rejecting(&scope, report) {
            fields.set("access", no_client());
        }
        self.body_limit(&scope, &mut fields, report);
        headers::to_client(&scope, server.variables, &mut fields, report);
        self.push(server, &label, path, Item { comments, fields });
    }

    /// Returns what a location does, and whether limits and access are asked before.
    fn action(
        &mut self,
        server: Server<'a, '_>,
        scope: &Scope<'a>,
        location: &Location<'a>,
        report: &mut ImportReport,
    ) -> (Fields, bool) {
        let Location { kind, block, .. } = location;
        if scope.find("internal").is_some() {
            let unasked = scope.all(&["internal"]).into_iter().chain(block.all("return"));
            unasked.for_each(|directive| report.take(directive));
            return (respond(json!({ "status": 404 })), false);
        }
        let all = redirects(block);
        if let Some(first) = all.first()
            && !matches!(kind, Kind::Prefix(..))
        {
            let why = format!("{PARTLY}. Its requests get {NOT_CONVERTED}");
            report.note(first, why);
            return (respond(json!({ "status": NOT_CONVERTED })), false);
        }
        if let Some(fields) = answer(block, scope, server.variables, report) {
            return (fields, false);
        }
        let own = Scope(vec![block]);
        let Some(pass) = own.take("proxy_pass", report) else {
            if access(scope, self.folder, report).denies_all {
                return (respond(json!({ "status": 403 })), true);
            }
            report.note(
                block,
                format!("it serves files or asks another module. Its requests get {NOT_CONVERTED}"),
            );
            return (respond(json!({ "status": NOT_CONVERTED })), true);
        };
        let (prefix, is_exact) = match kind {
            Kind::Exact(path) => (Some(*path), true),
            Kind::Prefix(path, _) => (Some(*path), false),
            Kind::Regex(..) => (None, false),
        };
        let context = LocationContext {
            scope,
            variables: server.variables,
            prefix,
            is_exact,
            folder: self.folder,
        };
        match proxied(pass, context, &mut self.upstreams, report) {
            Ok(fields) => (fields, true),
            Err(why) => {
                report.note(pass, format!("{why}. Its requests get {NOT_CONVERTED}"));
                (respond(json!({ "status": NOT_CONVERTED })), true)
            }
        }
    }

    /// Adds which clients may use a route and what limits it. Returns what to know of the rules.
    fn conditions(
        &mut self,
        scope: &Scope<'a>,
        route: &str,
        fields: &mut Fields,
        report: &mut ImportReport,
    ) -> Vec<String> {
        fields.append(access(scope, self.folder, report).fields);
        let rules = self.zones.rules(scope, route, report);
        if !rules.flow.is_empty() {
            fields.set("flow", rules.flow);
        }
        if let Some(reject) = rules.reject {
            fields.set("reject", reject);
        }
        rules.comments
    }

    fn body_limit(&self, scope: &Scope<'_>, fields: &mut Fields, report: &mut ImportReport) {
        let usual = Scope(vec![self.http]).find("client_max_body_size");
        let usual = usual.and_then(|directive| size(directive.arg(0))).unwrap_or(USUAL_BODY);
        let Some(directive) = scope.take("client_max_body_size", report) else { return };
        match size(directive.arg(0)) {
            Some(bytes) if bytes == usual => {}
            Some(0) => fields.set("body_limit", json!(NO_LIMIT)),
            Some(bytes) => fields.set("body_limit", json!(sized(bytes))),
            None => report.note(directive, "the size is not clear"),
        }
    }

    /// Returns where a block is, with its words.
    fn position(&self, block: &Directive) -> String {
        let file = self.tree.files.get(block.file).map_or("", String::as_str);
        format!("{file}:{} {}", block.line, block.words())
    }

    fn push(
        &mut self,
        server: Server<'_, '_>,
        label: &str,
        path: (&'static str, Value),
        item: Item,
    ) {
        let name = self.name(server, label);
        let matching = server.share.matching(path, self.listeners);
        let mut head = Fields::default();
        head.set("match", matching);
        head.append(item.fields);
        self.items.push(Item { fields: head.named(&name), ..item });
    }

    /// Returns a name for the next route that no other has.
    fn name(&self, server: Server<'_, '_>, label: &str) -> String {
        let name =
            if self.servers > 1 { format!("{}/{label}", server.name) } else { label.to_owned() };
        let name: String = name.chars().take(56).collect();
        let is_taken = |name: &String| self.items.iter().any(|item| item.text("name") == name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = core::iter::once(name.clone()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or(name)
    }
}
