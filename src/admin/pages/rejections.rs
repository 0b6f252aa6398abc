//! `/rejections`.

use crate::{
    admin::{
        context::Admin,
        endpoint::{Ask, Endpoint},
        keys::Names,
        reply::{Reply, json, plain},
    },
    rejections::Filter,
};
use http::StatusCode;
use std::borrow::Cow;

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint::get(
    "/rejections",
    "the last 1,000 rejections with their numbers, as JSON; ?route= &rule= &limit=",
    show,
)];

fn show(admin: &Admin, ask: &Ask) -> Reply {
    let field = |name| ask.query(name).next().map(Cow::into_owned);
    let limit = field("limit").map(|limit| limit.parse());
    let Ok(limit) = limit.transpose() else {
        return plain(StatusCode::BAD_REQUEST, "`limit` is a number\n");
    };
    let filter = Filter { route: field("route"), rule: field("rule"), limit };
    let state = &admin.state;
    let names = Names::of(&state.live.load(), &state.key_names).known;
    json(StatusCode::OK, &state.rejections.list(&filter, names))
}
