//! Authenticates clients: passwords, which take time to check, and tokens.

use crate::proxy::gateway_error::{Challenge, GatewayError};
use crate::{
    auth::{Attempts, Credentials, PasswordCheck, TokenSource},
    clock::Clock,
    config::Auth,
    flow::Instant,
    http1::Fields,
    preview::Identified,
    route::{self, Identity, Seed},
};
use ahash::AHashMap;
use core::{net::IpAddr, num::NonZeroUsize};
use http::header::AUTHORIZATION;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{OnceCell, Semaphore};

/// The most passwords that wait for their check or are checked.
const MOST_RUNNING: usize = 64;

const MISSING: &str = "this route needs a user and a password, or a token";
const WRONG: &str = "the user or the password is wrong";

/// The passwords that the process checks, at most one for two workers at once: each takes some 50
/// ms of a core, or more, on a thread of its own.
#[derive(Debug)]
pub struct Passwords {
    memory: Mutex<Memory>,
    seed: Seed,
    turns: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Memory {
    attempts: Attempts,
    /// Checks by fingerprint: requests with the same password wait for one check.
    running: AHashMap<u128, Weak<OnceCell<bool>>>,
}

/// What is known about a client at once.
pub(crate) enum Checked {
    Passed(Identity),
    Rejected(GatewayError),
    Later(Attempt),
}

/// A password whose check takes time.
pub(crate) struct Attempt {
    check: Arc<PasswordCheck>,
    result: Arc<OnceCell<bool>>,
    pub(crate) client: IpAddr,
    /// What the client is asked for if it is wrong.
    challenge: Challenge,
}

impl Passwords {
    /// `workers` are the threads that serve requests.
    pub fn new(workers: NonZeroUsize) -> Self {
        let turns = Arc::new(Semaphore::new(workers.get().div_ceil(2)));
        Self { memory: Mutex::default(), seed: Seed::random(), turns }
    }

    /// Reports which user has sent a request with these `headers`, which came at `now`, by the
    /// wall's clock at `wall`.
    pub(crate) fn check(
        &self,
        auth: &Auth,
        headers: Fields<'_>,
        client: IpAddr,
        now: Instant,
        wall: Instant,
    ) -> Checked {
        // Of two fields the server could take the other one.
        let field = headers.get_only(AUTHORIZATION.as_str());
        if let Some(users) = &auth.basic
            && let Some(credentials) = field.and_then(Credentials::read)
        {
            let challenge = Challenge::of(auth, WRONG, false);
            return self.begin(users.check(credentials, &self.seed), client, challenge, now);
        }

        let token = auth.jwt.as_ref().and_then(|jwt| token(&jwt.rules.source, headers, field));
        let why = match auth.jwt.as_ref().zip(token) {
            None => MISSING,
            Some((jwt, token)) => {
                match jwt.keys.verify(token, &jwt.rules, wall.since(Instant::EPOCH)) {
                    Ok(identity) => return Checked::Passed(identity),
                    Err(why) => why,
                }
            }
        };
        Checked::Rejected(GatewayError::Unauthenticated(Challenge::of(auth, why, token.is_some())))
    }

    /// Reports for a preview which user has sent a request, if that is known without checking a
    /// password.
    pub(crate) fn known(
        &self,
        auth: &Auth,
        headers: Fields<'_>,
        now: Instant,
        wall: Instant,
    ) -> Identified {
        let field = headers.get_only(AUTHORIZATION.as_str());
        if let Some(users) = &auth.basic
            && let Some(credentials) = field.and_then(Credentials::read)
        {
            let check = users.check(credentials, &self.seed);
            if !self.memory().attempts.is_verified(check.print, now) {
                return Identified::Unchecked;
            }
            return Identified::As(Some(Identity::of_user(check.user)));
        }
        match by_token(auth, headers, wall) {
            Some(Ok(identity)) => Identified::As(Some(identity)),
            Some(Err(_)) | None => Identified::Rejected,
        }
    }

    fn begin(
        &self,
        check: PasswordCheck,
        client: IpAddr,
        challenge: Challenge,
        now: Instant,
    ) -> Checked {
        let mut memory = self.memory();
        let Memory { attempts, running } = &mut *memory;
        if attempts.is_verified(check.print, now) {
            return Checked::Passed(Identity::of_user(check.user));
        }

        let known = running.get(&check.print).and_then(Weak::upgrade);
        let result = if let Some(result) = known {
            result
        } else {
            if running.len() >= MOST_RUNNING {
                running.retain(|_, result| result.strong_count() > 0);
            }
            if running.len() >= MOST_RUNNING {
                return Checked::Rejected(GatewayError::TooManyChecks);
            }
            if let Err(wait) = attempts.begin(client, now) {
                return Checked::Rejected(GatewayError::Guessing(wait));
            }
            let result = Arc::default();
            running.insert(check.print, Arc::downgrade(&result));
            result
        };
        Checked::Later(Attempt { check: Arc::new(check), result, client, challenge })
    }

    /// Waits for the result of an attempt.
    pub(crate) async fn finish(
        &self,
        attempt: Attempt,
        clock: &Clock,
    ) -> Result<Identity, GatewayError> {
        let Attempt { check, result, client, challenge } = attempt;
        let is_right = *result
            .get_or_init(|| async {
                let is_right = self.run(Arc::clone(&check)).await;
                let mut memory = self.memory();
                memory.running.remove(&check.print);
                if is_right {
                    memory.attempts.succeed(client, check.print, clock.now());
                }
                is_right
            })
            .await;
        if is_right {
            return Ok(Identity::of_user(check.user.clone()));
        }
        Err(GatewayError::Unauthenticated(challenge))
    }

    async fn run(&self, check: Arc<PasswordCheck>) -> bool {
        // It is never closed.
        let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else { return false };
        // The turn ends with the check, not with the client that waits for it.
        let run = move || {
            let is_right = check.run();
            drop(turn);
            is_right
        };
        tokio::task::spawn_blocking(run).await.unwrap_or(false)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns who has sent a request by its token, by the wall's clock at `wall`, or why the token is not
/// valid. `None` if the request has no token, or the route takes none.
pub(crate) fn by_token(
    auth: &Auth,
    headers: Fields<'_>,
    wall: Instant,
) -> Option<Result<Identity, &'static str>> {
    let jwt = auth.jwt.as_ref()?;
    let field = headers.get_only(AUTHORIZATION.as_str());
    let token = token(&jwt.rules.source, headers, field)?;
    Some(jwt.keys.verify(token, &jwt.rules, wall.since(Instant::EPOCH)))
}

/// Returns the token of a request, if it has one. `authorization` is its only such field.
fn token<'a>(
    source: &TokenSource,
    headers: Fields<'a>,
    authorization: Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    match source {
        TokenSource::Bearer => {
            let (scheme, token) = authorization?.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        }
        TokenSource::Header(name) => headers.get_only(name.as_str()).map(<[u8]>::trim_ascii),
        TokenSource::Cookie(name) => route::cookie(headers, name).ok(),
    }
}
