//! InitProducerId, and the producer ids this node may give out: blocks of a thousand from the
//! controller, the next one fetched before the last is used up. An id is given out once, whatever
//! becomes of this node: what is left of a block at a crash is never used.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::ProducerId;
use protocol::messages::{
    AllocateProducerIdsRequest, InitProducerIdRequest, InitProducerIdResponse,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::RequestContext;
use crate::directory::Directory;
use crate::error::Error;

/// The next block is asked for when this many ids are left.
const PREFETCH_BELOW: i64 = 100;

/// How long a client waits for a block before it is told to come again.
const WAIT: Duration = Duration::from_secs(5);

/// How long one question to the controller may take.
const ALLOCATION_DEADLINE: Duration = Duration::from_secs(5);

/// Pause after a refused question: this broker is not registered yet, or not any more.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Answers InitProducerId.
pub async fn init_producer_id(
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |code: ErrorCode| InitProducerIdResponse {
        error_code: code.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    if let Some(transactional_id) = &request.transactional_id {
        // Nothing else ends every client's attempts at once: any code about coordinators is
        // retried for ever, and librdkafka retries all but a few.
        tracing::warn!(
            transactional_id,
            "transactions are not served: no transaction coordinator is built"
        );
        return refused(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    // Kafka gives an idempotent producer a new id even if it names the one it had.
    match ProducerIds::next(&context.directory).await {
        Ok(id) => InitProducerIdResponse {
            producer_id: id.0,
            producer_epoch: 0,
            ..InitProducerIdResponse::default()
        },
        Err(error) => {
            tracing::debug!(%error, "no producer id");
            refused(error.code())
        }
    }
}

/// The ids of this node.
#[derive(Debug, Default)]
pub struct ProducerIds {
    blocks: Mutex<Blocks>,
    arrived: Notify,
}

#[derive(Debug)]
struct Blocks {
    current: Range<i64>,
    next: Option<Range<i64>>,
    /// Whether the controller is being asked.
    asking: bool,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks { current: 0..0, next: None, asking: false }
    }
}

/// What a look at the blocks gave.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    id: Option<ProducerId>,
    /// The controller has to be asked, by who looked.
    ask: bool,
}

impl Blocks {
    fn take(&mut self) -> Taken {
        if self.current.is_empty()
            && let Some(next) = self.next.take()
        {
            self.current = next;
        }
        let id = self.current.next().map(ProducerId);
        let left = self.current.end - self.current.start;
        let ask = left < PREFETCH_BELOW && self.next.is_none() && !self.asking;
        self.asking |= ask;
        Taken { id, ask }
    }

    fn answered(&mut self, block: Option<Range<i64>>) {
        self.asking = false;
        if block.is_some() {
            self.next = block;
        }
    }
}

impl ProducerIds {
    /// An id that nobody else ever gets.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS when the controller gave no block in time; clients retry.
    pub async fn next(directory: &Arc<Directory>) -> Result<ProducerId, Error> {
        let ids = &directory.producer_ids;
        let deadline = Instant::now() + WAIT;
        loop {
            let arrived = ids.arrived.notified();
            tokio::pin!(arrived);
            // From here on no arrival is missed.
            arrived.as_mut().enable();
            let Taken { id, ask } = ids.blocks.lock().take();
            if ask {
                directory.runtimes.spawn_data(ask_for_block(Arc::clone(directory)));
            }
            if let Some(id) = id {
                return Ok(id);
            }
            if tokio::time::timeout_at(deadline, arrived).await.is_err() {
                return Err(Error::refused(ErrorCode::CoordinatorLoadInProgress));
            }
        }
    }
}

async fn ask_for_block(directory: Arc<Directory>) {
    let block = allocate(&directory).await;
    if let Err(error) = &block {
        tracing::debug!(%error, "no block of producer ids");
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
    directory.producer_ids.blocks.lock().answered(block.ok());
    directory.producer_ids.arrived.notify_waiters();
}

async fn allocate(directory: &Arc<Directory>) -> Result<Range<i64>, Error> {
    let request = AllocateProducerIdsRequest {
        broker_id: directory.node_id().0,
        broker_epoch: directory.broker_epoch().0,
    };
    match directory.call_controller(Request::from(request), ALLOCATION_DEADLINE).await? {
        Response::AllocateProducerIds(response) => match ErrorCode::from_code(response.error_code)
        {
            ErrorCode::None => {
                let start = response.producer_id_start;
                Ok(start..start + i64::from(response.producer_id_len))
            }
            code => Err(Error::refused(code)),
        },
        other => Err(crate::peers::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_asked_for_once_and_before_the_last_is_used_up() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.take(), Taken { id: None, ask: true });
        assert_eq!(blocks.take(), Taken { id: None, ask: false });
        blocks.answered(Some(0..1000));
        for expected in 0..900 {
            let taken = blocks.take();
            assert_eq!(taken, Taken { id: Some(ProducerId(expected)), ask: false });
        }
        assert_eq!(blocks.take(), Taken { id: Some(ProducerId(900)), ask: true });
        blocks.answered(Some(5000..6000));
        for expected in 901..1000 {
            assert_eq!(blocks.take(), Taken { id: Some(ProducerId(expected)), ask: false });
        }
        assert_eq!(blocks.take(), Taken { id: Some(ProducerId(5000)), ask: false });
    }

    #[test]
    fn a_refused_question_is_asked_again() {
        let mut blocks = Blocks::default();
        assert!(blocks.take().ask);
        blocks.answered(None);
        assert_eq!(blocks.take(), Taken { id: None, ask: true });
    }
}
