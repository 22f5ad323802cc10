//! A link to a running cluster that can be cut: a forwarder in front of each of its brokers. Owns
//! the local ports and the names under which a client sees the brokers; looks into the answers
//! that carry addresses and into nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use net::{ByteBudget, ClusterView, FrameReader};
use protocol::api::{ApiKey, Response};
use protocol::frame::{read_response, response_frame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes of one frame, in either direction.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// Key, version and correlation id at the start of every request.
const REQUEST_START_BYTES: usize = 8;

/// The link. Dropping it cuts it.
#[derive(Debug)]
pub struct CutLink {
    ports: Arc<BTreeMap<i32, u16>>,
    cut: watch::Sender<bool>,
}

/// Requests on their way, in order: what an answer is read by.
type Asked = Arc<Mutex<VecDeque<(i16, i16)>>>;

impl CutLink {
    /// Opens a local port in front of each broker of the cluster.
    ///
    /// # Errors
    /// No broker is named, or no port is free.
    pub async fn open(cluster: &ClusterView) -> Result<CutLink> {
        if cluster.brokers.is_empty() {
            bail!("the source names no broker");
        }
        let mut listeners = Vec::new();
        let mut ports = BTreeMap::new();
        for (id, broker) in &cluster.brokers {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("no port is free")?;
            ports.insert(*id, listener.local_addr()?.port());
            listeners.push((listener, broker.host.clone(), broker.port));
        }
        let link = CutLink { ports: Arc::new(ports), cut: watch::Sender::new(false) };
        for (listener, host, port) in listeners {
            let forwarder = Forwarder {
                broker: (host, u16::try_from(port)?),
                ports: Arc::clone(&link.ports),
                cut: link.cut.subscribe(),
            };
            tokio::spawn(forwarder.accept(listener));
        }
        Ok(link)
    }

    /// The brokers as they are seen through the link, for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let addresses = self.ports.values().map(|port| format!("127.0.0.1:{port}"));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Ends every connection and takes no more.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }
}

/// Stands in front of one broker.
#[derive(Clone)]
struct Forwarder {
    broker: (String, u16),
    ports: Arc<BTreeMap<i32, u16>>,
    cut: watch::Receiver<bool>,
}

impl Forwarder {
    async fn accept(self, listener: TcpListener) {
        let mut cut = self.cut.clone();
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok((client, _)) => drop(tokio::spawn(self.clone().forward(client))),
                    Err(error) => tracing::debug!(%error, "the link accepts nobody"),
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            _ = cut.wait_for(|cut| *cut) => {}
        }
    }

    async fn forward(self, client: TcpStream) {
        let mut cut = self.cut.clone();
        let both = async {
            let broker = TcpStream::connect(&self.broker).await?;
            broker.set_nodelay(true)?;
            client.set_nodelay(true)?;
            let (from_client, to_client) = client.into_split();
            let (from_broker, to_broker) = broker.into_split();
            let asked = Asked::default();
            tokio::select! {
                ended = pass_requests(from_client, to_broker, &asked) => ended,
                ended = self.pass_answers(from_broker, to_client, &asked) => ended,
            }
        };
        tokio::select! {
            ended = both => if let Err(error) = ended {
                tracing::debug!(%error, "a connection over the link ended");
            },
            // Dropping both sockets is the cut.
            _ = cut.wait_for(|cut| *cut) => {}
        }
    }

    async fn pass_answers(
        &self,
        broker: impl AsyncRead + Unpin,
        mut client: impl AsyncWrite + Unpin,
        asked: &Asked,
    ) -> Result<()> {
        let mut frames = FrameReader::new(broker, FRAME_BYTES_MAX, ByteBudget::unlimited());
        while let Some(frame) = frames.next().await? {
            let request = asked.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match request.and_then(|(key, version)| self.renamed(key, version, &frame.bytes)) {
                Some(answer) => client.write_all(&answer).await?,
                None => write_frame(&mut client, &frame.bytes).await?,
            }
        }
        Ok(())
    }

    /// The whole frame of an answer whose addresses lead around the link, with ours instead;
    /// `None` for what carries none. A Fetch answer names addresses only when a leader has moved.
    fn renamed(&self, key: i16, version: i16, answer: &Bytes) -> Option<Bytes> {
        let key = ApiKey::from_i16(key)?;
        if !matches!(key, ApiKey::Metadata | ApiKey::DescribeCluster | ApiKey::FindCoordinator) {
            return None;
        }
        let (header, mut response) = read_response(answer.clone(), key, version).ok()?;
        if let Response::Metadata(metadata) = &mut response {
            for broker in &mut metadata.brokers {
                self.rename(broker.node_id, &mut broker.host, &mut broker.port);
            }
        }
        if let Response::DescribeCluster(cluster) = &mut response {
            for broker in &mut cluster.brokers {
                self.rename(broker.broker_id, &mut broker.host, &mut broker.port);
            }
        }
        if let Response::FindCoordinator(found) = &mut response {
            self.rename(found.node_id, &mut found.host, &mut found.port);
            for found in &mut found.coordinators {
                self.rename(found.node_id, &mut found.host, &mut found.port);
            }
        }
        response_frame(&response, version, header.correlation_id).ok()
    }

    fn rename(&self, node_id: i32, host: &mut String, port: &mut i32) {
        if let Some(ours) = self.ports.get(&node_id) {
            "127.0.0.1".clone_into(host);
            *port = i32::from(*ours);
        }
    }
}

async fn pass_requests(
    client: impl AsyncRead + Unpin,
    mut broker: impl AsyncWrite + Unpin,
    asked: &Asked,
) -> Result<()> {
    let mut frames = FrameReader::new(client, FRAME_BYTES_MAX, ByteBudget::unlimited());
    while let Some(frame) = frames.next().await? {
        let Some(start) = frame.bytes.first_chunk::<REQUEST_START_BYTES>() else {
            bail!("a request of {} bytes has no header", frame.bytes.len());
        };
        let key = i16::from_be_bytes([start[0], start[1]]);
        let version = i16::from_be_bytes([start[2], start[3]]);
        asked.lock().unwrap_or_else(PoisonError::into_inner).push_back((key, version));
        write_frame(&mut broker, &frame.bytes).await?;
    }
    Ok(())
}

async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &Bytes) -> Result<()> {
    to.write_all(&u32::try_from(frame.len())?.to_be_bytes()).await?;
    to.write_all(frame).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::messages::{MetadataResponse, metadata_response};

    use super::*;

    fn forwarder() -> Forwarder {
        Forwarder {
            broker: ("source".to_owned(), 9092),
            ports: Arc::new(BTreeMap::from([(1, 4001), (2, 4002)])),
            cut: watch::Sender::new(false).subscribe(),
        }
    }

    #[test]
    fn brokers_are_seen_at_the_links_own_ports() {
        let broker = |node_id| metadata_response::MetadataResponseBroker {
            node_id,
            host: "source".to_owned(),
            port: 9092,
            ..Default::default()
        };
        let metadata = MetadataResponse {
            brokers: vec![broker(1), broker(2), broker(3)],
            ..MetadataResponse::default()
        };
        for version in 0..=13 {
            let frame = response_frame(&metadata.clone().into(), version, 7).unwrap();
            let key = ApiKey::Metadata.as_i16();
            let renamed = forwarder().renamed(key, version, &frame.slice(4..)).unwrap();
            let (header, response) =
                read_response(renamed.slice(4..), ApiKey::Metadata, version).unwrap();
            assert_eq!(header.correlation_id, 7);
            let seen = MetadataResponse::try_from(response).unwrap();
            let ports: Vec<i32> = seen.brokers.iter().map(|broker| broker.port).collect();
            // A broker that joined after the link was opened has no port of the link's.
            assert_eq!(ports, [4001, 4002, 9092]);
        }
    }

    #[test]
    fn what_carries_no_address_passes_as_it_is() {
        assert_eq!(forwarder().renamed(ApiKey::Fetch.as_i16(), 17, &Bytes::new()), None);
        assert_eq!(forwarder().renamed(9999, 0, &Bytes::new()), None);
    }
}
