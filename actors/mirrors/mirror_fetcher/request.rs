//! One Fetch request to a source broker. Owns what a source of an older version is not asked;
//! reads nothing of the answer.

use std::time::Duration;

use net::Client;
use protocol::api::{ApiKey, Request};
use protocol::messages::{FetchRequest, FetchResponse};

use super::Answer;

/// The first version that names topics by id.
const TOPIC_IDS_FROM: i16 = 13;

/// The first version that compares the last fetched epoch.
const LAST_FETCHED_EPOCH_FROM: i16 = 12;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) client: Client,
    pub(super) broker: i32,
    pub(super) lane: u8,
    pub(super) client_id: String,
    pub(super) request: FetchRequest,
    pub(super) deadline: Duration,
}

impl Fetch {
    /// Sends it and waits for the answer.
    pub(super) async fn run(self) -> Result<Answer, String> {
        let Fetch { client, broker, lane, client_id, mut request, deadline } = self;
        let link = client.reconnecting(broker, lane);
        let connection = link.connection(deadline).await.map_err(|error| error.to_string())?;
        let version = connection
            .version(ApiKey::Fetch)
            .ok_or_else(|| format!("broker {broker} serves no Fetch version known here"))?;
        if version < LAST_FETCHED_EPOCH_FROM {
            let partitions = request.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.last_fetched_epoch = -1);
        }
        let answer = connection.call_as(&client_id, &Request::from(request), deadline).await;
        let response = match answer {
            Ok(response) => {
                FetchResponse::try_from(response).map_err(|error| error.to_string())?
            }
            Err(error) => {
                if matches!(error, net::Error::TimedOut { .. }) {
                    // It may never answer: the next request goes over a fresh connection.
                    link.disconnect();
                }
                return Err(error.to_string());
            }
        };
        Ok(Answer { response, by_id: version >= TOPIC_IDS_FROM })
    }
}
