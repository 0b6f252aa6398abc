//! The request to explain, as clients of the admin listener describe it.

use crate::{
    config::{Listener, Snapshot, is_served},
    route::{
        BodyMembers, ClaimValue, ClientCertificate, MemberPath, MemberPaths, canonical_host,
        json_body, parse_method,
    },
};
use core::net::{IpAddr, Ipv4Addr};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, uri::PathAndQuery};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// The most header lines of a question.
pub const MAX_HEADERS: usize = 128;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its method; `GET` if there is none.
    #[serde(default = "get")]
    pub method: String,
    /// Its path, with the query.
    pub path: String,
    /// Its host; that of the header lines, or `localhost`, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its header lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The members of its JSON body: their paths and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<(String, String)>,
    /// The address that it comes from; 127.0.0.1 if there is none. Of a trusted proxy,
    /// `X-Forwarded-For` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// The listener that it comes by; the first of the file if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// The subject of the client's certificate, as `CN=ann,O=Example`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_subject: Option<String>,
    /// The SHA-256 of the client's certificate, with colons or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_fingerprint: Option<String>,
    /// The user that it has authenticated as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its token, in place of one in the header lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The claims of its token, which need no signature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, TokenClaim>,
}

/// A claim of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TokenClaim {
    /// A single value.
    One(String),
    /// A list of values.
    List(Vec<String>),
}

impl TokenClaim {
    /// Returns the claim with one more value.
    #[must_use]
    pub fn and(self, value: String) -> Self {
        let mut values = match self {
            Self::One(first) => vec![first],
            Self::List(values) => values,
        };
        values.push(value);
        Self::List(values)
    }

    /// Returns it as the claim of a verified token.
    pub(super) fn value(&self) -> ClaimValue {
        match self {
            Self::One(text) => ClaimValue::of_text(text.as_str().into()),
            Self::List(values) => {
                ClaimValue::of_list(values.iter().map(|value| value.as_str().into()).collect())
            }
        }
    }
}

fn get() -> String {
    Method::GET.to_string()
}

/// A question in the terms of routes.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) from: IpAddr,
    pub(super) listener: Arc<Listener>,
    pub(super) certificate: Option<ClientCertificate>,
}

impl Question {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// The error in it, for people.
    pub(super) fn read(&self, snapshot: &Snapshot) -> Result<Request, String> {
        let method = parse_method(&self.method).map_err(|wrong| wrong.to_string())?;
        if !is_served(&method) {
            return Err(format!("the gateway serves no {method}"));
        }
        let headers = self.header_map()?;
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = self.host.as_deref().or(named).unwrap_or("localhost");
        let host = canonical_host(authority)
            .map_err(|bad| format!("`{}` is not a host: {bad}", authority.escape_debug()))?;
        Ok(Request {
            method,
            target: self.target()?,
            host: host.into_owned(),
            headers,
            from: self.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            listener: self.find_listener(snapshot)?,
            certificate: self.certificate()?,
        })
    }

    /// Returns the client's certificate, of which the parts that are not given are empty.
    fn certificate(&self) -> Result<Option<ClientCertificate>, String> {
        if self.client_cert_subject.is_none() && self.client_cert_fingerprint.is_none() {
            return Ok(None);
        }
        let fingerprint = match self.client_cert_fingerprint.as_deref() {
            None => String::new(),
            Some(text) => ClientCertificate::read_fingerprint(text)
                .ok_or_else(|| format!("`{}` is no SHA-256", text.escape_debug()))?,
        };
        let subject = self.client_cert_subject.clone().unwrap_or_default();
        Ok(Some(ClientCertificate { subject: subject.into(), fingerprint: fingerprint.into() }))
    }

    fn target(&self) -> Result<PathAndQuery, String> {
        let shown = self.path.escape_debug();
        let target = PathAndQuery::try_from(self.path.as_str()).ok();
        let target = target.filter(|target| target.as_str() == self.path);
        let target = target.filter(|target| target.path().starts_with('/'));
        target.ok_or_else(|| format!("`{shown}` is not a path: write /path or /path?query"))
    }

    fn header_map(&self) -> Result<HeaderMap, String> {
        if self.headers.len() > MAX_HEADERS {
            return Err(format!("more than {MAX_HEADERS} header lines"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let shown = name.escape_debug();
            let name = HeaderName::try_from(name.as_str())
                .map_err(|_| format!("`{shown}` is not the name of a header"))?;
            let value = HeaderValue::try_from(value.as_str()).map_err(|_| {
                format!("the value of `{shown}` has a character that none can have")
            })?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    /// Returns the members of its body that a route looks at.
    ///
    /// # Errors
    ///
    /// A name is no path, for people.
    pub(super) fn members(
        &self,
        paths: Option<&Arc<MemberPaths>>,
        most: usize,
    ) -> Result<Option<BodyMembers>, String> {
        if let Some(wrong) = self.json.iter().find_map(|(path, _)| MemberPath::parse(path).err()) {
            return Err(wrong.to_string());
        }
        let body = json_body(self.json.iter().map(|(path, value)| (&**path, &**value)));
        let paths = paths.filter(|_| !self.json.is_empty() && body.len() <= most);
        Ok(paths.and_then(|paths| BodyMembers::of(paths, body.as_bytes())))
    }

    fn find_listener(&self, snapshot: &Snapshot) -> Result<Arc<Listener>, String> {
        let found = match &self.listener {
            Some(name) => snapshot.listener(name),
            None => snapshot.listeners.first(),
        };
        found.map(Arc::clone).ok_or_else(|| {
            let names: Vec<&str> =
                snapshot.listeners.iter().map(|listener| &*listener.name).collect();
            format!("there is no such listener; there are: {}", names.join(", "))
        })
    }
}
