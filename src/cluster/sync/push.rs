//! Questions about the states of several rules, over one connection.

use super::call::{Question, SyncReply};
use crate::cluster::{
    error::{CallFailure, FailureScope, StoreError, within},
    redis::{StoreConnection, query_all},
    scripts::is_unknown,
};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection, cmd};
use tokio::task::JoinSet;

/// The answer to a question: `None` if a version check found something new.
pub(super) type SyncResult = Result<Option<SyncReply>, StoreError>;

impl StoreConnection {
    /// Returns the node that has the states of a rule, in a Redis Cluster.
    pub(super) fn node_of_rule(&self, name: &str) -> Option<usize> {
        self.node_of(&format!("{}{name}", self.client.store.settings.prefix))
    }

    /// Asks about several rules at once, at `node` of a Redis Cluster: merges deltas and returns
    /// new states, or checks. Returns an answer for each, in order. Of a rule that the store
    /// rejects nothing is merged.
    ///
    /// # Errors
    ///
    /// Why there is no usable answer. Some deltas may be merged.
    pub(super) async fn sync(
        self,
        node: Option<usize>,
        questions: &[Question],
    ) -> Result<Vec<SyncResult>, StoreError> {
        let (checks, pushes) =
            questions.iter().partition::<Vec<_>, _>(|question| question.is_version_check());
        let found = tokio::join!(self.version_check(node, &checks), self.push(&pushes));
        let mut of_checks = found.0?.into_iter();
        let mut of_pushes = found.1?.into_iter();
        let answer = |question: &Question| {
            let answers = if question.is_version_check() { &mut of_checks } else { &mut of_pushes };
            answers.next().ok_or(StoreError::InvalidReply)
        };
        questions.iter().map(answer).collect()
    }

    /// Asks what was changed last, of each of these rules: commands without a script, of which a
    /// hundred take the store as long as a few scripts.
    async fn version_check(
        &self,
        node: Option<usize>,
        checks: &[&Question],
    ) -> Result<Vec<SyncResult>, StoreError> {
        let nothing = || checks.iter().map(|_| Ok(None)).collect();
        // A rule at a node that fails gets that answer by a call of its own.
        let Some(mut connection) = self.server(node).filter(|_| !checks.is_empty()) else {
            return Ok(nothing());
        };

        let client = &*self.client;
        let script = &client.store.scripts.sync;
        let latest = checks.iter().map(|check| check.call(script, true));
        let calls: Vec<Cmd> = [cmd("TIME")].into_iter().chain(latest).collect();
        let answers = client.clock.timeout(client.limit, query_all(&mut connection, &calls)).await;

        match within(answers) {
            Ok(answers) => {
                let [time, latest @ ..] = &answers[..] else { return Ok(nothing()) };
                // A version check that is rejected or redirected needs a call, too.
                let read = |(check, latest): (&&Question, &RedisResult<Value>)| {
                    check.unchanged(time.as_ref().ok()?, latest.as_ref().ok()?)
                };
                Ok(checks.iter().zip(latest).map(|pair| Ok(read(pair))).collect())
            }
            Err(failure) => {
                let failure = failure.of_call(script.name);
                let failure = match node {
                    Some(node) => failure.of_node(node),
                    None => failure,
                };
                let is_of_store = failure.scope == FailureScope::Store;
                let error = self.fail(failure);
                if is_of_store { Err(error) } else { Ok(nothing()) }
            }
        }
    }

    /// Makes a call about each of these rules, in a Redis Cluster at the node that has it.
    async fn push(&self, pushes: &[&Question]) -> Result<Vec<SyncResult>, StoreError> {
        let answers = match self.server(None) {
            Some(only) => self.push_all(only, pushes).await?,
            None => self.push_each(pushes).await,
        };
        let read = |answer: Result<Value, CallFailure>| {
            SyncReply::read(&answer?).map_err(|_| CallFailure::invalid_reply("to a sync"))
        };
        let heard = |answer| match read(answer) {
            Err(failure) if failure.scope == FailureScope::Store => Err(self.fail(failure)),
            reply => Ok(reply.map(Some).map_err(|failure| self.fail(failure))),
        };
        answers.into_iter().map(heard).collect()
    }

    /// Makes all calls at once, each of which may be sent to another node.
    async fn push_each(&self, pushes: &[&Question]) -> Vec<Result<Value, CallFailure>> {
        let mut calls = JoinSet::new();
        for (at, push) in pushes.iter().enumerate() {
            let Question::Push { keys, arguments } = push else { continue };
            let mut connection = self.clone();
            let keys = keys.clone();
            let arguments = arguments.clone();
            calls.spawn(async move {
                let script = connection.client.store.scripts.sync.clone();
                let answer = connection.run(&script, &keys, &arguments).await;
                // At once, so that no other call waits for the same node.
                let recorded = answer.map_err(|failure| {
                    let error = failure.error;
                    connection
                        .record(failure)
                        .err()
                        .unwrap_or_else(|| CallFailure::known(error, String::new()))
                });
                (at, recorded)
            });
        }

        let mut answers = calls.join_all().await;
        answers.sort_unstable_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Makes all calls in one round trip.
    async fn push_all(
        &self,
        connection: MultiplexedConnection,
        pushes: &[&Question],
    ) -> Result<Vec<Result<Value, CallFailure>>, StoreError> {
        if pushes.is_empty() {
            return Ok(Vec::new());
        }

        let client = &*self.client;
        let name = client.store.scripts.sync.name;
        let answers = client.clock.timeout(client.limit, self.ask_all(connection, pushes)).await;

        match within(answers) {
            Ok(answers) if answers.len() == pushes.len() => {
                let failed = |error| CallFailure::from(&error).of_call(name);
                Ok(answers.into_iter().map(|answer| answer.map_err(failed)).collect())
            }
            Ok(_) => Err(self.fail(CallFailure::invalid_reply("to a sync"))),
            Err(failure) => Err(self.fail(failure.of_call(name))),
        }
    }

    /// Makes a call for each of these, and again where the store did not know the script.
    async fn ask_all(
        &self,
        mut connection: MultiplexedConnection,
        pushes: &[&Question],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let script = &self.client.store.scripts.sync;
        let call = |push: &Question, is_known| push.call(script, is_known);
        let calls: Vec<Cmd> = pushes.iter().map(|push| call(push, true)).collect();
        let mut answers = query_all(&mut connection, &calls).await?;

        let mut unknown: Vec<_> = pushes.iter().zip(&mut answers).collect();
        unknown.retain(|(_, answer)| answer.as_ref().is_err_and(is_unknown));

        if !unknown.is_empty() {
            let calls: Vec<Cmd> = unknown.iter().map(|(push, _)| call(push, false)).collect();
            let again = query_all(&mut connection, &calls).await?;
            unknown.into_iter().zip(again).for_each(|((_, answer), new)| *answer = new);
        }

        Ok(answers)
    }
}
