//! DescribeCluster: the cluster's id, its controller and its brokers, fenced ones on request.

use protocol::error_code::ErrorCode;
use protocol::messages::describe_cluster_response::DescribeClusterBroker;
use protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::admin;
use super::context::RequestContext;
use super::listener_view::{CLUSTER_OPERATIONS, ListenerView};

/// The endpoint type of brokers.
const BROKERS: i8 = 1;
/// The endpoint type of controllers, which only their own listener tells of.
const CONTROLLERS: i8 = 2;

/// Answers DescribeCluster.
pub fn describe_cluster(
    context: &RequestContext,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let refused = |code: ErrorCode, message: String| DescribeClusterResponse {
        error_code: code.code(),
        error_message: Some(message),
        ..DescribeClusterResponse::default()
    };
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            let message =
                "This is an endpoint of type BROKER, and one of type CONTROLLER is meant.";
            return refused(ErrorCode::MismatchedEndpointType, message.to_owned());
        }
        other => {
            let message = format!("Unsupported endpoint type {other}.");
            return refused(ErrorCode::UnsupportedEndpointType, message);
        }
    }
    let image = context.directory.image();
    let view = ListenerView::new(&image, &context.listener_name);
    let listed = image
        .cluster
        .brokers
        .values()
        .filter(|broker| !broker.fenced || request.include_fenced_brokers);
    let brokers = listed.filter_map(|broker| {
        let listener = broker.listener(&context.listener_name)?;
        Some(DescribeClusterBroker {
            broker_id: broker.id.0,
            host: listener.host.clone(),
            port: i32::from(listener.port),
            rack: broker.rack.clone(),
            is_fenced: broker.fenced,
        })
    });
    let mut response = DescribeClusterResponse {
        cluster_id: image.cluster.id().unwrap_or_default().to_owned(),
        controller_id: view.controller_id(admin::quorum_leader(&context.directory)),
        brokers: brokers.collect(),
        ..DescribeClusterResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}
