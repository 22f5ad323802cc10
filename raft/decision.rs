//! What a decision gives: records to agree on, and the answer once they are. Changes nothing.

use crate::records::MetadataRecord;

/// The outcome of a `decide_*` function. The response holds only when the records are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision<T> {
    /// What to propose as one Raft entry. Empty: nothing changes, answer at once.
    pub records: Vec<MetadataRecord>,
    /// The answer.
    pub response: T,
}

impl<T> Decision<T> {
    /// A decision that changes something.
    pub fn new(records: Vec<MetadataRecord>, response: T) -> Self {
        Self { records, response }
    }

    /// A decision that changes nothing.
    pub fn unchanged(response: T) -> Self {
        Self { records: Vec::new(), response }
    }

    /// The same records with another response.
    pub fn map<U>(self, response: impl FnOnce(T) -> U) -> Decision<U> {
        Decision { records: self.records, response: response(self.response) }
    }
}
