//! The words for what differs.

/// Collects what differs.
#[derive(Default)]
pub(super) struct Words(pub Vec<String>);

impl Words {
    pub(super) fn value<T: PartialEq>(
        &mut self,
        key: &str,
        old: T,
        new: T,
        show: impl Fn(&T) -> String,
    ) {
        if old != new {
            let [old, new] = [old, new].map(|value| clipped(&show(&value)));
            self.0.push(format!("{key} {old} → {new}"));
        }
    }

    /// Says that something changed whose value is long, or secret.
    pub(super) fn named(&mut self, key: &str, is_same: bool) {
        if !is_same {
            self.0.push(key.to_owned());
        }
    }

    pub(super) fn add(&mut self, words: String) {
        self.0.push(words);
    }
}

/// Shortens a value.
fn clipped(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}
