//! `/rejections`.

use crate::{
    admin::{
        context::Admin,
        endpoint::{Ask, Endpoint},
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
    json(StatusCode::OK, &admin.state.rejections.list(&filter))
}
