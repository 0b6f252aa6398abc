//! The routes of a server.

use super::{
    access::{access, no_client},
    converted_config::{Fields, Item},
    guards::is_rejecting,
    headers,
    limits::Zones,
    locations::{self, Kind, Location},
    matched::Matched,
    numbers::{size, sized},
    order::ordered,
    proxied::{LocationContext, proxied},
    report::ImportReport,
    returns::{NOT_CONVERTED, answer, redirect, respond},
    scope::Scope,
    servers::Share,
    template::ServerVariables,
    tree::{Directive, Tree},
    upstreams::Upstreams,
};
use serde_json::json;
use std::path::Path;

/// The largest body of a request without a limit of its own: what nginx allows.
pub(super) const USUAL_BODY: u64 = 1 << 20;

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
}

impl<'a> Routes<'a, '_> {
    /// Adds the routes of a server for one share of its requests.
    pub(super) fn add(&mut self, server: Server<'a, '_>, report: &mut ImportReport) {
        let scope = Scope(vec![self.http, server.block]);
        let any = ("path_prefix", json!("/"));
        if let Some(mut fields) = answer(server.block, &scope, server.variables, report) {
            if is_rejecting(&scope, report) {
                fields.set("access", no_client());
            }
            for location in server.block.all("location") {
                report
                    .note(location, "nothing comes here: the server's `return` answers everything");
            }
            let comments = vec![self.position(server.block)];
            return self.push(server, "all", any, Item { comments, fields });
        }
        let locations = locations::read(server.block, &scope, report);
        for matched in &ordered(&locations, &scope, report) {
            self.location(server, matched, report);
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

    fn location(
        &mut self,
        server: Server<'a, '_>,
        matched: &Matched<'a>,
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
                ("path", json!(path)),
                Item { comments, fields },
            );
        }
        let mut comments = vec![self.position(block)];
        if matched.is_closed {
            let fields = respond(json!({ "status": 403 }));
            return self.push(server, &label, matched.path.clone(), Item { comments, fields });
        }
        let scope = matched.location.scope(&Scope(vec![self.http, server.block]));
        let route = self.name(server, &label);
        let (mut fields, is_asked) = self.action(server, &scope, &matched.location, report);
        if is_asked {
            comments.append(&mut self.conditions(&scope, &route, &mut fields, report));
        } else if is_rejecting(&scope, report) {
            fields.set("access", no_client());
        }
        self.body_limit(&scope, &mut fields, report);
        headers::to_client(&scope, server.variables, &mut fields, report);
        self.push(server, &label, matched.path.clone(), Item { comments, fields });
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
        path: (&'static str, serde_json::Value),
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

/// Returns a word for a location.
fn label(kind: Kind<'_>) -> String {
    let (Kind::Exact(text) | Kind::Prefix(text, _) | Kind::Regex(text, _)) = kind;
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "/_.".contains(sign);
    let text: String = text.chars().map(|sign| if fits(sign) { sign } else { '-' }).collect();
    let words: Vec<_> = text.split('-').filter(|word| !word.is_empty()).collect();
    let label = words.join("-");
    let label = label.trim_matches(['/', '-', '.']);
    if label.is_empty() { "all".into() } else { label.into() }
}
