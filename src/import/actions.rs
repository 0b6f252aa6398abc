//! The action of a location, with its limits and its access.
//!
//! flowgate serves no files. So all requests of a location go where nginx sends those without a file.

use super::{
    access::{Access, Closing, access},
    auth_request::{Asking, asked, location_at},
    branches::{BranchContext, Branches},
    converted_config::{Fields, Item},
    error_pages::ErrorPages,
    headers,
    locations::{Kind, Location, label},
    numbers::{size, sized},
    order::Matched,
    program::{State, Used},
    proxied::{LocationContext, proxied},
    redirects::{
        NOT_CONVERTED, answer, behind, is_path_test, redirect, redirected, redirects, respond,
    },
    report::ImportReport,
    routes::{Routes, Server, Site, USUAL_BODY},
    sites::OwnRoute,
    template::ServerVariables,
    tree::{Directive, Scope},
};
use serde_json::{Value, json};

/// The reason why a `rewrite` in an exact location or a regular expression does not convert.
const PARTLY: &str = "which of the location's paths it takes is not clear";

/// Any size at all.
const NO_LIMIT: &str = "1EiB";

/// The action of a location.
#[derive(Debug, Default)]
struct Action<'a> {
    fields: Fields,
    /// Limits and access are asked before.
    is_asked: bool,
    /// The location to which its requests go, if it serves files itself.
    named: Option<&'a Directive>,
}

impl Action<'_> {
    fn unasked(fields: Fields) -> Self {
        Self { fields, ..Self::default() }
    }

    fn asked(fields: Fields) -> Self {
        Self { fields, is_asked: true, ..Self::default() }
    }
}

/// A location of a server, with the name of its route.
#[derive(Clone, Copy, Debug)]
struct Place<'a, 's> {
    server: Server<'a, 's>,
    location: &'s Location<'a>,
    scope: &'s Scope<'a>,
    /// The state of the requests that come here.
    state: &'s State,
    route: &'s str,
}

/// A location whose conditions are converted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a, 's> {
    pub scope: &'s Scope<'a>,
    pub state: &'s State,
    /// The location that limits ask first, if it is not the same.
    pub outer: &'s Scope<'a>,
    pub variables: &'s ServerVariables<'a>,
    pub route: &'s str,
}

impl<'a> Routes<'a, '_> {
    /// Adds the routes of a location. `first` are the redirects of its server, and `branches` its
    /// conditions.
    pub(super) fn location(
        &mut self,
        server: Server<'a, '_>,
        matched: &Matched<'a>,
        first: &[&Directive],
        branches: &Branches<'a>,
        report: &mut ImportReport,
    ) {
        let Location { kind, block, .. } = &matched.location;
        let label = label(*kind);

        if let Some(path) = &matched.redirects {
            let comments = vec![format!("{}: adds the slash", self.position(block))];
            let item = Item { comments, fields: redirect("{path}/", 301) };
            let path = behind(first, ("path", json!(path)));
            let site = Site { label: format!("{label}-slash"), path, item };
            self.site(server, &site, branches, report);
        }

        let path = behind(first, matched.path.clone());
        if matched.is_closed {
            let comments = vec![self.position(block)];
            let item = Item { comments, fields: respond(json!({ "status": 403 })) };
            let site = Site { label, path, item };
            return self.site(server, &site, &Branches::default(), report);
        }

        let scope = matched.location.scope(&Scope(vec![self.http, server.block]));
        let mut branches = branches.clone();
        let context = BranchContext { scope: &scope, maps: self.maps, variables: server.variables };
        // The server's own are read already.
        let is_location = block.name == "location";
        if is_location && scope.find("internal").is_none() {
            branches.program.enter();
            branches.read(block, context, |directive| !is_path_test(directive), report);
            if let Kind::Prefix(prefix, _) = kind {
                let first = redirected(&redirects(block), prefix, &scope, server.variables, report);
                self.answered(server, &scope, first, &branches, report);
            }
        }

        // Its requests go on to a named location, whose directives come then.
        let named = match fallback(block, server.block) {
            Some(Fallback::Named { named, .. }) => Some(named),
            Some(Fallback::Own(_) | Fallback::Missing { .. }) | None => None,
        };
        if let Some(named) = named {
            let own = Scope(vec![self.http, server.block, named]);
            let context = BranchContext { scope: &own, ..context };
            branches.program.enter();
            branches.read(named, context, |_| true, report);
        }

        let service =
            asked(&scope).and_then(|directive| location_at(&scope, directive.arg(0)).ok());
        let blocks = scope.0.iter().copied().chain(named).chain(service);
        let used = Used::by(blocks);
        let site = Site { label, path, item: Item::default() };
        self.routes(server, &site, &branches, &used, report, |routes, state, route, report| {
            routes.own_route(server, &matched.location, state, route, report)
        });
    }

    /// Returns the route of a location for requests in a state.
    fn own_route(
        &mut self,
        server: Server<'a, '_>,
        location: &Location<'a>,
        state: &State,
        route: &str,
        report: &mut ImportReport,
    ) -> OwnRoute {
        if state.is_plain() {
            return self.own_route_of(server, location, state, route, report);
        }

        // The same blocks with the values of this state.
        let block = state.applied(location.block);
        let around: Vec<_> = location.around.iter().map(|block| state.applied(block)).collect();
        let applied = state.applied(server.block);
        let location =
            Location { block: &block, around: around.iter().collect(), ..location.clone() };
        let is_server = location.block.id == applied.id;
        let server = Server { block: if is_server { &block } else { &applied }, ..server };
        self.own_route_of(server, &location, state, route, report)
    }

    fn own_route_of<'b>(
        &mut self,
        server: Server<'b, '_>,
        location: &Location<'b>,
        state: &State,
        route: &str,
        report: &mut ImportReport,
    ) -> OwnRoute
    where
        'a: 'b,
    {
        let scope = location.scope(&Scope(vec![self.http, server.block]));
        let place = Place { server, location, scope: &scope, state, route };
        let Action { mut fields, is_asked, named } = self.action(place, report);
        let inner = named.map_or_else(|| scope.clone(), |named| scope.within(named));

        let mut comments = vec![self.position(location.block)];
        let mut closings = Vec::new();
        if is_asked {
            let (more, more_closings) = self.conditions(
                Conditions {
                    scope: &inner,
                    state,
                    outer: &scope,
                    variables: server.variables,
                    route,
                },
                &mut fields,
                report,
            );
            comments.extend(more);
            closings = more_closings;
            let http = self.http;
            let Server { block, variables, .. } = server;
            let pages =
                ErrorPages { scope: &inner, http, server: block, variables, files: self.files };
            pages.convert(&mut fields, report);
        }

        self.body_limit(&scope, &mut fields, report);
        let answering = named.map_or(scope, |named| Scope(vec![self.http, server.block, named]));
        headers::to_client(&answering, server.variables, &mut fields, report);
        OwnRoute { item: Item { comments, fields }, closings }
    }

    fn action<'b>(&mut self, place: Place<'b, '_>, report: &mut ImportReport) -> Action<'b>
    where
        'a: 'b,
    {
        let Place { server, location, scope, route, .. } = place;
        let Location { kind, block, .. } = location;
        if scope.find("internal").is_some() {
            let unasked = scope.all(&["internal"]).into_iter().chain(block.all("return"));
            unasked.for_each(|directive| report.take(directive));
            return Action::unasked(respond(json!({ "status": 404 })));
        }

        let all = redirects(block);
        if let Some(first) = all.first().filter(|_| block.name == "location")
            && !matches!(kind, Kind::Prefix(..))
        {
            let why = format!("{PARTLY}. Its requests get {NOT_CONVERTED}");
            report.block(first, why, Some(route));
            return Action::asked(respond(json!({ "status": NOT_CONVERTED })));
        }

        if let Some(fields) = answer(block, scope, server.variables, report) {
            return Action::unasked(fields);
        }

        match fallback(block, server.block) {
            Some(Fallback::Own(pass)) => {
                report.take(pass);
                Action::asked(self.pass(place, pass, scope, report))
            }
            Some(Fallback::Missing { test, pass }) => {
                report.take(test);
                report.take(pass);
                let why = "files are not served: all requests go to the upstream";
                report.note(test, why);
                let scope = scope.within(test);
                Action::asked(self.pass(place, pass, &scope, report))
            }
            Some(Fallback::Named { by, named }) => self.named(place, by, named, report),
            None => self.unserved(place, report),
        }
    }

    /// Returns what a named location does, to which all requests go that nginx serves no file to.
    fn named<'b>(
        &mut self,
        place: Place<'b, '_>,
        by: &'b Directive,
        named: &'b Directive,
        report: &mut ImportReport,
    ) -> Action<'b>
    where
        'a: 'b,
    {
        let scope = Scope(vec![self.http, place.server.block, named]);
        report.take(named);
        report.take(by);
        let why = format!("files are not served: all requests go to {}", named.arg(0));
        report.note(by, why);

        if let Some(fields) = answer(named, &scope, place.server.variables, report) {
            return Action { fields, is_asked: true, named: Some(named) };
        }
        let Some(pass) = named.inner().iter().find(|directive| is_pass(directive)) else {
            let why =
                format!("it serves files or asks another module. Its requests get {NOT_CONVERTED}");
            report.block(named, why, Some(place.route));
            return Action::asked(respond(json!({ "status": NOT_CONVERTED })));
        };

        report.take(pass);
        let fields = self.pass(place, pass, &scope, report);
        Action { fields, is_asked: true, named: Some(named) }
    }

    /// Returns what a route does that passes requests on, or rejects them if that does not convert.
    fn pass<'b>(
        &mut self,
        place: Place<'b, '_>,
        pass: &'b Directive,
        scope: &Scope<'b>,
        report: &mut ImportReport,
    ) -> Fields
    where
        'a: 'b,
    {
        let context = LocationContext {
            scope,
            variables: place.server.variables,
            kind: place.location.kind,
            values: &place.state.values,
            files: self.files,
            maps: self.maps,
        };

        match proxied(pass, context, &mut self.upstreams, report) {
            Ok(fields) => fields,
            Err(why) => {
                let why = format!("{why}. Its requests get {NOT_CONVERTED}");
                report.block(pass, why, Some(place.route));
                respond(json!({ "status": NOT_CONVERTED }))
            }
        }
    }

    /// Returns what becomes of a location that passes nothing on.
    fn unserved<'b>(&self, place: Place<'b, '_>, report: &mut ImportReport) -> Action<'b> {
        let Place { location, scope, route, .. } = place;
        if access(scope, self.files, report).denies_all {
            return Action::asked(respond(json!({ "status": 403 })));
        }

        let why =
            format!("it serves files or asks another module. Its requests get {NOT_CONVERTED}");
        report.block(location.block, why, Some(route));
        Action::asked(respond(json!({ "status": NOT_CONVERTED })))
    }

    /// Adds which clients may use a route and what limits it. Returns what to know of the rules, and
    /// what closes the route.
    pub(super) fn conditions(
        &mut self,
        conditions: Conditions<'_, '_>,
        fields: &mut Fields,
        report: &mut ImportReport,
    ) -> (Vec<String>, Vec<Closing>) {
        let Conditions { scope, state, outer, variables, route } = conditions;
        let Access { fields: mut own, mut closings, .. } = access(scope, self.files, report);
        if let Some(directive) = asked(scope) {
            let asking = Asking { scope, state, variables, files: self.files, route };
            let forward = asking.forward(directive, &mut self.upstreams, report);
            match forward {
                Ok(_) if own.0.contains_key("auth") => {
                    closings.push(Closing::new(directive, "passwords are asked for as well"));
                }
                Ok(forward) => own.set("auth", json!({ "forward": Value::from(forward) })),
                Err(why) => closings.push(Closing::new(directive, why)),
            }
        }

        // Both locations are asked in nginx, and one list would replace the other.
        let lists = ["allow", "deny"];
        let is_twofold = scope.0.len() > outer.0.len()
            && outer.0.last().is_some_and(|block| {
                block.name == "location" && !Scope(vec![*block]).all(&lists).is_empty()
            })
            && scope.0.last().is_some_and(|block| !Scope(vec![*block]).all(&lists).is_empty());
        if is_twofold && let Some(directive) = outer.find("deny").or_else(|| outer.find("allow")) {
            closings.push(Closing::new(directive, "the named location restricts clients too"));
        }

        fields.append(own);
        let limited =
            if outer.all(&["limit_req", "limit_conn"]).is_empty() { scope } else { outer };

        let rules = self.zones.rules(limited, variables, route, report);
        if !rules.flow.is_empty() {
            fields.set("flow", rules.flow);
        }
        if let Some(reject) = rules.reject {
            fields.set("reject", reject);
        }
        (rules.comments, closings)
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
}

/// The directives that pass on the requests of a location.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fallback<'a> {
    /// The location itself passes them on.
    Own(&'a Directive),
    /// `if (!-f $request_filename)` passes them on.
    Missing { test: &'a Directive, pass: &'a Directive },
    /// A named location does, by a `try_files` or an `error_page`.
    Named { by: &'a Directive, named: &'a Directive },
}

/// Returns where the requests of a location go, or `None` if it passes nothing on.
pub(super) fn fallback<'a>(block: &'a Directive, server: &'a Directive) -> Option<Fallback<'a>> {
    let own = block.inner().iter().rfind(|directive| is_pass(directive));
    if let Some(pass) = own {
        return Some(Fallback::Own(pass));
    }

    let missing = block.all("if").filter(|test| is_missing_file(test)).find_map(|test| {
        let pass = test.inner().iter().find(|directive| is_pass(directive))?;
        Some(Fallback::Missing { test, pass })
    });

    missing.or_else(|| {
        // A server's own `try_files` is for paths without a location.
        let by = block.all("try_files").last();
        let errors = [block, server].into_iter().flat_map(|block| block.all("error_page"));
        let errors = errors.filter(|page| page.args.iter().any(|arg| arg == "404"));
        by.into_iter().chain(errors).find_map(|by| {
            let name = by.args.last().filter(|name| name.starts_with('@'))?;
            let named = server.all("location").find(|location| location.args == [name.as_str()])?;
            Some(Fallback::Named { by, named })
        })
    })
}

/// Reports whether an `if` asks whether there is no file.
pub(super) fn is_missing_file(test: &Directive) -> bool {
    let first = test.arg(0);
    let second = test.arg(1);
    let (sign, file) =
        if first == "(" { (second, test.arg(2)) } else { (&first[1.min(first.len())..], second) };
    matches!(sign, "!-f" | "!-e" | "!-d") && file.contains("request_filename")
}

/// Reports whether a directive passes requests to servers that speak HTTP.
pub(super) fn is_pass(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "proxy_pass" | "grpc_pass")
}
