//! Hands proposals to openraft in the order they were made. Never decides what is proposed; never
//! retries.

use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::type_config::alias::OneshotReceiverOf;
use protocol::ids::NodeId;
use tokio::sync::{mpsc, oneshot};

use super::error::ProposeError;
use super::options::ENTRY_BYTES_MAX;
use super::type_config::{CommittedLeader, Raft, RecordBatch, TypeConfig};

/// The Raft index of an entry, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

type Written = OneshotReceiverOf<TypeConfig, ClientWriteResult<TypeConfig>>;

/// One proposal on its way to openraft. The queue is unbounded: the one actor that decides bounds
/// it by how many decisions it has in flight.
pub(crate) struct Proposal {
    batch: RecordBatch,
    term: Option<u64>,
    /// Gets openraft's answer to come.
    sent: oneshot::Sender<Result<Written, ProposeError>>,
}

/// Queues a batch; the returned future resolves when it is applied here.
pub(crate) fn propose(
    queue: &mpsc::UnboundedSender<Proposal>,
    batch: RecordBatch,
    term: Option<u64>,
) -> impl Future<Output = Result<LogIndex, ProposeError>> + Send + use<> {
    let records = batch.records.len();
    let size = bincode::serialized_size(&batch).unwrap_or(u64::MAX);
    // Half the bound: the fixed-width size counted here is above the variable-width one, but the
    // entry around the batch has a header.
    let fits = usize::try_from(size).is_ok_and(|bytes| bytes <= ENTRY_BYTES_MAX / 2);
    let (sent, receiver) = oneshot::channel();
    let queued = if fits {
        queue.send(Proposal { batch, term, sent }).map_err(|_| stopped("the proposer is gone"))
    } else {
        Err(ProposeError::TooLarge { records, limit: ENTRY_BYTES_MAX / 2 })
    };
    async move {
        queued?;
        let written = receiver.await.map_err(|_| stopped("the proposer is gone"))??;
        let answer = written.await.map_err(|_| stopped("the Raft core is gone"))?;
        match answer {
            Ok(response) => Ok(LogIndex(response.log_id.index)),
            Err(error) => Err(refused(error)),
        }
    }
}

/// Takes proposals in order and hands each to openraft, until the last handle is gone.
pub(crate) async fn serve(raft: Raft, mut queue: mpsc::UnboundedReceiver<Proposal>) {
    while let Some(Proposal { batch, term, sent }) = queue.recv().await {
        let (responder, written) = ProgressResponder::complete_only();
        let mut request = raft.write(batch).responder(responder);
        if let Some(term) = term {
            request = request.with_leader(CommittedLeader::new(term));
        }
        let result = match request.await {
            Ok(()) => Ok(written),
            Err(fatal) => Err(stopped(&fatal.to_string())),
        };
        // The proposer may have given up waiting.
        let _ = sent.send(result);
    }
}

fn stopped(reason: &str) -> ProposeError {
    ProposeError::Stopped { reason: reason.to_owned() }
}

fn refused(error: ClientWriteError<TypeConfig>) -> ProposeError {
    let leader = |node: Option<NodeId>| node;
    match error {
        ClientWriteError::ForwardToLeader(forward) => {
            ProposeError::NotLeader { leader: leader(forward.leader_node) }
        }
        ClientWriteError::LogEntryDiscarded(forward) => {
            ProposeError::OutcomeUnknown { leader: leader(forward.leader_node) }
        }
        ClientWriteError::PreconditionFailed(_) => ProposeError::NotLeader { leader: None },
        ClientWriteError::ChangeMembershipError(error) => stopped(&error.to_string()),
    }
}
