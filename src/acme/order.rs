//! One order: the account, the authorizations by challenges, and the certificate.

use super::{
    client::Client,
    schedule::{self, Validity},
    storage::{ChallengeKind, PlacedChallenge, Storage},
    x509::{self, WrongCertificate},
};
use crate::{
    clock::Clock,
    config::{Acme, AcmeOrder, Eab},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use core::time::Duration;
use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use std::{io, sync::Arc};

/// The longest time of an order, from the directory to the certificate.
const ORDER_LIMIT: Duration = Duration::from_mins(5);

/// The waits between two looks at an order: the first one, the longest one, and the longest one that an
/// authority can demand.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(5);
const LONGEST_DEMAND: Duration = Duration::from_secs(30);

/// The wait for another order that creates the account.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// The longest text of an authority that logs show.
const MOST_CHARS: usize = 300;

const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
const ALREADY_REPLACED: &str = "urn:ietf:params:acme:error:alreadyReplaced";

/// The reason for which there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// The authority rejects a request, or cannot be reached.
    #[error("{}", shown(_0))]
    Authority(#[from] Error),
    /// Its directory cannot be read.
    #[error("{0}")]
    Unreachable(#[source] io::Error),
    /// The folder cannot be written.
    #[error("the folder cannot be written: {0}")]
    Storage(#[from] io::Error),
    /// A challenge has failed.
    #[error("the authority cannot verify {name}: {detail}")]
    Unauthorized { name: String, detail: String },
    /// None of the challenges that flowgate can answer.
    #[error("the authority offers neither HTTP-01 nor TLS-ALPN-01 for {0}")]
    NoChallenge(String),
    /// An authorization for another name, or a token that is none.
    #[error("the authority sends an order that does not fit")]
    OtherOrder,
    /// The order has failed.
    #[error("the order has failed: {0}")]
    Failed(String),
    /// Another certificate than the one ordered.
    #[error("the authority has issued another certificate: {0}")]
    Wrong(#[from] WrongCertificate),
    /// One that is not valid now, while one in use is.
    #[error("the authority has issued a certificate that is not valid now: it is valid from {} until {}", schedule::shown(_0.not_before), schedule::shown(_0.not_after))]
    NotValid(Validity),
    /// A key or a request cannot be made.
    #[error("cannot make the request: {0}")]
    Request(#[from] rcgen::Error),
    /// It takes longer than five minutes.
    #[error("the order has not ended within 5m")]
    Late,
}

/// The parts of an order that stay the same.
pub(super) struct OrderContext<'c> {
    pub(super) acme: &'c Arc<Acme>,
    pub(super) storage: &'c Storage,
    pub(super) client: &'c Client,
    pub(super) clock: &'c Clock,
}

/// A certificate that was just issued for an order.
pub(super) struct NewCertificate {
    /// Its key and its chain.
    pub(super) pem: String,
    pub(super) validity: Validity,
}

impl OrderContext<'_> {
    /// Orders a certificate. `attempt` counts from 1: the kind of the challenge alternates. `replaces` is
    /// the identifier of the certificate before.
    ///
    /// # Errors
    ///
    /// See [`OrderError`].
    pub(super) async fn obtain(
        &self,
        order: &AcmeOrder,
        attempt: u32,
        replaces: Option<&str>,
    ) -> Result<NewCertificate, OrderError> {
        let ordering = self.obtain_by_account(order, attempt, replaces);
        let outcome =
            self.clock.timeout(ORDER_LIMIT, ordering).await.unwrap_or(Err(OrderError::Late));
        if outcome.as_ref().err().and_then(OrderError::kind) != Some(NO_ACCOUNT) {
            return outcome;
        }

        // An authority that has lost its accounts gets a new one.
        tracing::warn!(directory = %self.acme.directory, "the authority does not know the account any more: creating another one");
        self.storage.retire_account()?;
        let ordering = self.obtain_by_account(order, attempt, replaces);
        self.clock.timeout(ORDER_LIMIT, ordering).await.unwrap_or(Err(OrderError::Late))
    }

    async fn obtain_by_account(
        &self,
        order: &AcmeOrder,
        attempt: u32,
        replaces: Option<&str>,
    ) -> Result<NewCertificate, OrderError> {
        let account = self.account().await?;
        let mut placed = self.place_order(&account, order, replaces).await?;
        let challenges = self.authorize(&mut placed, order, attempt).await?;
        self.wait_for(&mut placed, OrderStatus::Ready, order).await?;
        drop(challenges);

        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(order.names.as_slice())?;
        params.distinguished_name = DistinguishedName::new();
        placed.finalize_csr(params.serialize_request(&key)?.der()).await?;
        self.wait_for(&mut placed, OrderStatus::Valid, order).await?;

        let chain = placed.certificate().await?;
        let chain = chain.ok_or(OrderError::OtherOrder)?;
        let pem = format!("{}{chain}", key.serialize_pem());
        let validity = x509::inspect(pem.as_bytes(), &order.names)?.validity;
        Ok(NewCertificate { pem, validity })
    }

    /// Returns the account, and creates it if there is none.
    async fn account(&self) -> Result<Account, OrderError> {
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        // Another order, or another gateway, may be creating it.
        let _lock = loop {
            let lock = self.storage.lock_account()?;
            if let Some(known) = self.storage.account() {
                return Ok(builder().from_credentials(known).await?);
            }
            if let Some(lock) = lock {
                break lock;
            }
            self.clock.timer(self.clock.now() + LOCK_WAIT).await;
        };

        let contact = self.acme.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = self.acme.eab.as_ref().map(external_key);
        let directory = self.acme.directory.clone();
        let (account, credentials) =
            builder().create(&wanted, directory, external.as_ref()).await?;
        self.storage.write_account(&credentials)?;
        tracing::info!(directory = %self.acme.directory, "created an account at the authority");
        Ok(account)
    }

    /// Places the order, if possible as the replacement of the certificate before.
    async fn place_order(
        &self,
        account: &Account,
        order: &AcmeOrder,
        replaces: Option<&str>,
    ) -> Result<Order, OrderError> {
        let names: Vec<_> = order.names.iter().cloned().map(Identifier::Dns).collect();
        let plain = || NewOrder::new(&names);
        let before = replaces.filter(|_| self.client.renewal_info().is_some());
        let Some((authority_key, serial)) = before.and_then(|id| id.split_once('.')) else {
            return Ok(account.new_order(&plain()).await?);
        };

        let replaces = CertificateIdentifier {
            authority_key_identifier: authority_key.into(),
            serial: serial.into(),
        };
        match account.new_order(&plain().replaces(replaces)).await {
            // It has been replaced, or the authority does not keep to the standard.
            Err(Error::Api(problem)) if problem.r#type.as_deref() != Some(ALREADY_REPLACED) => {
                Err(Error::Api(problem).into())
            }
            Err(Error::Api(_) | Error::Other(_)) => Ok(account.new_order(&plain()).await?),
            placed => Ok(placed?),
        }
    }

    /// Places the answers of all challenges, and asks the authority to look at them. The answers stay until
    /// the result is dropped.
    async fn authorize(
        &self,
        placed: &mut Order,
        order: &AcmeOrder,
        attempt: u32,
    ) -> Result<Vec<PlacedChallenge>, OrderError> {
        let mut challenges = Vec::new();
        if placed.state().authorizations.len() > order.names.len() {
            return Err(OrderError::OtherOrder);
        }
        let mut authorizations = placed.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            let name = authorization.identifier().to_string().to_ascii_lowercase();
            if !order.names.contains(&name) {
                return Err(OrderError::OtherOrder);
            }
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Invalid
                | AuthorizationStatus::Revoked
                | AuthorizationStatus::Expired
                | AuthorizationStatus::Deactivated => {
                    return Err(OrderError::Unauthorized { name, detail: why(&authorization) });
                }
            }
            challenges.push(self.begin_challenge(&mut authorization, &name, attempt).await?);
        }
        Ok(challenges)
    }

    async fn begin_challenge<'a>(
        &self,
        authorization: &'a mut AuthorizationHandle<'a>,
        name: &str,
        attempt: u32,
    ) -> Result<PlacedChallenge, OrderError> {
        let is_offered = |kind: ChallengeKind| {
            authorization.challenges.iter().any(|offered| offered.r#type == kind_of(kind))
        };
        let mut kinds = [ChallengeKind::TlsAlpn01, ChallengeKind::Http01];
        if self.acme.has_plain_listener == (attempt % 2 == 1) {
            kinds.reverse();
        }
        let kind = kinds.into_iter().find(|kind| is_offered(*kind));
        let kind = kind.ok_or_else(|| OrderError::NoChallenge(name.to_owned()))?;

        let challenge = authorization.challenge(kind_of(kind));
        let mut challenge = challenge.ok_or_else(|| OrderError::NoChallenge(name.to_owned()))?;
        if !super::challenge::is_token(&challenge.token) {
            return Err(OrderError::OtherOrder);
        }
        let answer = challenge.key_authorization();
        let placed = match kind {
            ChallengeKind::Http01 => self.storage.place(kind, &challenge.token, answer.as_str())?,
            ChallengeKind::TlsAlpn01 => {
                let pem = challenge_certificate(name, answer.digest().as_ref())?;
                self.storage.place(kind, name, &pem)?
            }
        };
        challenge.set_ready().await?;
        Ok(placed)
    }

    /// Looks at the order until it has this status.
    async fn wait_for(
        &self,
        placed: &mut Order,
        status: OrderStatus,
        order: &AcmeOrder,
    ) -> Result<(), OrderError> {
        let mut wait = FIRST_LOOK;
        loop {
            let state = placed.state();
            let is_there = match state.status {
                OrderStatus::Invalid => {
                    let problem = state.error.as_ref().map(problem_text);
                    return Err(self.why_failed(placed, problem, order).await);
                }
                // It may be further than it is waited for.
                OrderStatus::Valid => true,
                OrderStatus::Ready => status == OrderStatus::Ready,
                OrderStatus::Pending | OrderStatus::Processing => false,
            };
            if is_there {
                return Ok(());
            }

            let demanded = self.client.retry_after().unwrap_or_default().min(LONGEST_DEMAND);
            self.clock.timer(self.clock.now() + wait.max(demanded)).await;
            wait = (wait * 2).min(LONGEST_LOOK);
            placed.refresh().await?;
        }
    }

    /// Returns why an order has failed: the first challenge that did, or what the order says.
    async fn why_failed(
        &self,
        placed: &mut Order,
        problem: Option<String>,
        order: &AcmeOrder,
    ) -> OrderError {
        let mut authorizations = placed.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                break;
            }
            if matches!(authorization.status, AuthorizationStatus::Invalid) {
                let name = authorization.identifier().to_string();
                let name = order.names.iter().find(|own| **own == name).cloned();
                let name = name.unwrap_or_else(|| "a name".to_owned());
                return OrderError::Unauthorized { name, detail: why(&authorization) };
            }
        }
        OrderError::Failed(problem.unwrap_or_else(|| "the authority does not say why".to_owned()))
    }
}

impl OrderError {
    /// Returns the type of the authority's problem, if it has sent one.
    fn kind(&self) -> Option<&str> {
        match self {
            Self::Authority(Error::Api(problem)) => problem.r#type.as_deref(),
            Self::Authority(_)
            | Self::Unreachable(_)
            | Self::Storage(_)
            | Self::Unauthorized { .. }
            | Self::NoChallenge(_)
            | Self::OtherOrder
            | Self::Failed(_)
            | Self::Wrong(_)
            | Self::NotValid(_)
            | Self::Request(_)
            | Self::Late => None,
        }
    }
}

const fn kind_of(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

fn external_key(eab: &Eab) -> ExternalAccountKey {
    // That it can be decoded was checked with the file.
    let key = BASE64_URL_SAFE_NO_PAD.decode(eab.key.reveal()).unwrap_or_default();
    ExternalAccountKey::new(eab.kid.clone(), &key)
}

/// Makes the certificate that answers TLS-ALPN-01 (RFC 8737, section 3), with its key.
pub(super) fn challenge_certificate(name: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

/// Returns why an authorization has failed.
fn why(authorization: &AuthorizationHandle<'_>) -> String {
    let mut errors = authorization.challenges.iter().filter_map(|one| one.error.as_ref());
    errors.next().map_or_else(|| "it does not say why".to_owned(), problem_text)
}

fn problem_text(problem: &Problem) -> String {
    let detail = problem.detail.as_deref().or(problem.r#type.as_deref());
    cleaned(detail.unwrap_or("it does not say why"))
}

/// Returns the error as one line.
fn shown(error: &Error) -> String {
    let Error::Api(problem) = error else { return cleaned(&error.to_string()) };
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    format!("the authority rejects the request: {} ({})", problem_text(problem), cleaned(kind))
}

/// Returns a text that fits into a line of the log.
fn cleaned(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_authority_is_one_short_line() {
        let problem = Problem {
            r#type: Some("urn:ietf:params:acme:error:rateLimited".to_owned()),
            detail: Some(format!("too\nmany {}", "x".repeat(1000))),
            status: Some(429),
            subproblems: Vec::new(),
        };
        let text = shown(&Error::Api(problem));
        assert!(text.starts_with("the authority rejects the request: too many x"), "{text}");
        assert!(text.ends_with("x (rateLimited)") && text.len() < 400, "{text}");
    }
}
