//! The state of the old process's gates on its way to the new one.

use super::{
    channel::{Channel, ChannelError},
    message::Handover,
};
use crate::flow::{
    Gate,
    transfer::{GateExport, Journal, JournalReader, Late, SlotRule},
};
use std::sync::Arc;

/// Changes in a message.
const BATCH: usize = 256;

/// The gates by their routes' names.
pub(crate) type Gates = Arc<Vec<(Arc<str>, Arc<Gate>)>>;

/// The export of some gates, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct OutgoingState {
    gates: Gates,
    /// The last journal, so that changes do not end; none once the state is sent.
    journal: Option<Journal>,
    changes: JournalReader,
}

impl OutgoingState {
    /// Sends all states. Requests go on meanwhile: what they change is sent too.
    pub(super) fn send(gates: &Gates, channel: &Channel) -> Result<Self, ChannelError> {
        let (journal, changes) = Journal::new();
        let sent = Self { gates: Arc::clone(gates), journal: Some(journal), changes };
        for (number, (route, gate)) in (0..).zip(gates.iter()) {
            sent.send_gate(number, route, gate, channel)?;
        }
        channel.send(&Handover::Copied)?;
        Ok(sent)
    }

    fn send_gate(
        &self,
        number: u32,
        route: &str,
        gate: &Gate,
        channel: &Channel,
    ) -> Result<(), ChannelError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let GateExport { rules, has_lent } = gate.begin_export(journal.of(number));
        let slots: Vec<u32> = rules.iter().map(|(slot, _)| *slot).collect();
        let value = |(slot, rule): (u32, SlotRule)| Ok((slot, serde_json::to_value(rule)?));
        let rules = rules.into_iter().map(value).collect::<Result<_, _>>();
        let rules = rules.map_err(ChannelError::Encode)?;
        channel.send(&Handover::Gate { route: route.to_owned(), rules, has_lent })?;
        for slot in slots {
            let mut has_more = true;
            while has_more {
                let mut parts = Vec::new();
                has_more = gate.export(slot, &mut parts);
                if !parts.is_empty() {
                    channel.send(&Handover::Parts { gate: number, slot, parts })?;
                }
                self.send_changes(channel)?;
            }
        }
        Ok(())
    }

    /// Sends the changes so far.
    pub(super) fn send_changes(&self, channel: &Channel) -> Result<(), ChannelError> {
        while let Some(first) = self.changes.next() {
            self.send_batch(first, channel)?;
        }
        Ok(())
    }

    /// Returns whether more changed than could be sent.
    pub(super) fn is_lost(&self) -> bool {
        self.changes.is_lost()
    }

    /// Sends changes until the gates are no longer exported.
    pub(super) fn follow(&mut self, channel: &Channel) -> Result<(), ChannelError> {
        self.journal = None;
        while let Some(first) = self.changes.wait() {
            self.send_batch(first, channel)?;
        }
        channel.send(&Handover::Finished)
    }

    fn send_batch(&self, first: Late, channel: &Channel) -> Result<(), ChannelError> {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Some(next) = self.changes.next()
        {
            batch.push(next);
        }
        channel.send(&Handover::Late(batch))
    }
}

impl Drop for OutgoingState {
    fn drop(&mut self) {
        end(&self.gates);
    }
}

/// Ends the export: no later change is sent.
pub(super) fn end(gates: &Gates) {
    gates.iter().for_each(|(_, gate)| gate.end_export());
}
