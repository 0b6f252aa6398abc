//! Calls about the states of several rules, over a worker's way to the store.

use super::{
    Page, Push, StoreError,
    client::Link,
    dial::{Connection, query_all},
    error::{Failure, Scope, within},
    script::is_unknown,
};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};

impl Link {
    /// Has the store merge what was charged here, and tell what all have charged: of several
    /// rules, in one round trip, or in one for each with a Redis Cluster, whose nodes may each have
    /// some. Returns what came of each, in their order; of a rule that the store refuses nothing is
    /// merged.
    ///
    /// # Errors
    ///
    /// Why it has answered nothing that can be used, as far as is known: some of it may be merged.
    pub async fn exchange(
        mut self,
        pushes: &[Push<'_>],
    ) -> Result<Vec<Result<Page, StoreError>>, StoreError> {
        let answers = match &self.connection {
            Connection::One(connection) => self.push_all(connection.clone(), pushes).await?,
            Connection::Cluster(_) => self.push_each(pushes).await,
        };
        let read = |answer: Result<Value, Failure>| {
            Page::read(&answer?).map_err(|_| Failure::nonsense("to an exchange"))
        };
        let heard = |answer| match read(answer) {
            Err(failure) if failure.scope == Scope::Store => Err(self.fail(failure)),
            page => Ok(page.map_err(|failure| self.fail(failure))),
        };
        answers.into_iter().map(heard).collect()
    }

    /// Makes one call after the other, each of which may take as long as a call may.
    async fn push_each(&mut self, pushes: &[Push<'_>]) -> Vec<Result<Value, Failure>> {
        let inner = self.inner.clone();
        let (prefix, script) = (&inner.store.settings.prefix, &inner.store.scripts.exchange);
        let mut answers = Vec::with_capacity(pushes.len());
        for push in pushes {
            let arguments: Vec<String> = push.arguments("").collect();
            let answer = self.run(script, &push.keys(prefix), &arguments).await;
            // At once, so that the next call does not wait for the same node.
            answers.push(answer.map_err(|failure| {
                let error = failure.error;
                self.heed(failure).err().unwrap_or_else(|| Failure::out(error, String::new()))
            }));
        }
        answers
    }

    /// Makes all calls at once.
    async fn push_all(
        &self,
        connection: MultiplexedConnection,
        pushes: &[Push<'_>],
    ) -> Result<Vec<Result<Value, Failure>>, StoreError> {
        let inner = &*self.inner;
        let name = inner.store.scripts.exchange.name;
        let answers = inner.clock.timeout(inner.limit, self.ask_all(connection, pushes)).await;
        match within(answers) {
            Ok(answers) if answers.len() == pushes.len() => {
                let failed = |error| Failure::from(&error).of_call(name);
                Ok(answers.into_iter().map(|answer| answer.map_err(failed)).collect())
            }
            Ok(_) => Err(self.fail(Failure::nonsense("to an exchange"))),
            Err(failure) => Err(self.fail(failure.of_call(name))),
        }
    }

    /// Makes a call for each of these, and again where the store did not know the script.
    async fn ask_all(
        &self,
        mut connection: MultiplexedConnection,
        pushes: &[Push<'_>],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let store = &self.inner.store;
        let (prefix, script) = (&store.settings.prefix, &store.scripts.exchange);
        let call = |push: &Push<'_>, is_known| {
            script.call(is_known, &push.keys(prefix), push.arguments(""))
        };
        let calls: Vec<Cmd> = pushes.iter().map(|push| call(push, true)).collect();
        let mut answers = query_all(&mut connection, &calls).await?;
        let mut unknown: Vec<_> = pushes.iter().zip(&mut answers).collect();
        unknown.retain(|(_, answer)| answer.as_ref().is_err_and(is_unknown));
        if !unknown.is_empty() {
            let calls: Vec<Cmd> = unknown.iter().map(|(push, _)| call(push, false)).collect();
            let again = query_all(&mut connection, &calls).await?;
            unknown.into_iter().zip(again).for_each(|((_, answer), it)| *answer = it);
        }
        Ok(answers)
    }
}
