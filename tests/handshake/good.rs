//! Nodes of one cluster.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tidegate::gossip::Refusal;
use tidegate::id::TLS_NAME;
use tidegate::transport::{Identity, RECEIVE_WINDOW_BYTES};

use crate::ground::{Cluster, Names, Node, exchange, name};
use crate::recorder::Record;
use crate::stranger::Stranger;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_exchange_frames_in_order() {
    let (cluster, names) = (Cluster::new(1), Names::default());
    let a = Node::start("a", cluster.identity("a"), &names, &[]);
    let b = Node::start("b", cluster.identity("b"), &names, &a.seed());
    for n in 0..2000u32 {
        a.hub.send("b", n.to_le_bytes());
        b.hub.send("a", n.to_le_bytes());
    }
    // Frames of every size, the empty one included.
    a.hub.send("b", []);
    a.hub.send("b", vec![7; tidegate::codec::MAX_FRAME_BYTES]);
    for (node, count, peer) in [(&a, 2000, "b"), (&b, 2002, "a")] {
        node.hub.until("all frames", |record| record.received.len() == count).await;
        node.hub.read(|record| {
            let numbered = record.received.iter().take(2000).zip(0u32..);
            assert!(
                numbered.into_iter().all(|((from, frame), n)| from.as_str() == peer && frame[..] == n.to_le_bytes())
            );
        });
    }
    b.hub.read(|record| assert_eq!((record.received[2000].1.len(), record.received[2001].1.len()), (0, 1024 * 1024)));
}

/// The wanted kind of waiting: what a slow reader does not take stays with the hub.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_reader_holds_up_its_writer_and_nobody_else() {
    const FRAME: usize = 16 * 1024;
    const FRAMES: usize = 1024;
    let (cluster, names) = (Cluster::new(1), Names::default());
    let a = Node::start("a", cluster.identity("a"), &names, &[]);
    let slow = Node::start("slow", cluster.identity("slow"), &names, &a.seed());
    let quick = Node::start("quick", cluster.identity("quick"), &names, &a.seed());
    let held = slow.hub.hold();
    for n in 0..FRAMES {
        a.hub.send("slow", vec![n as u8; FRAME]);
    }
    let fetched = |at_least: usize| {
        move |record: &Record| record.fetched.iter().any(|(name, bytes)| name.as_str() == "slow" && *bytes >= at_least)
    };
    a.hub.until("the window is full", fetched(RECEIVE_WINDOW_BYTES as usize)).await;
    a.hub.until("quick is there", |record| record.connected("quick")).await;
    for n in 0..500 {
        exchange((&a.hub, "a"), (&quick.hub, "quick"), &format!("quick {n}")).await;
    }
    // What the reader has room for, and a frame in the hands of each side.
    let most = RECEIVE_WINDOW_BYTES as usize + 2 * (FRAME + 4);
    assert!(!a.hub.read(fetched(most + 1)), "{:?}", a.hub.read(|record| record.fetched.clone()));

    drop(held);
    slow.hub.until("all of it", |record| record.received.len() == FRAMES).await;
    slow.hub.read(|record| assert!(record.received.iter().zip(0..).all(|((_, frame), n)| frame[0] == n as u8)));
    assert!(a.hub.read(|record| record.closed.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_seed_is_resolved_anew_until_it_answers_and_may_be_the_node_itself() {
    let (cluster, names) = (Cluster::new(1), Names::default());
    let seeds = ["me.invalid:1", "peer.invalid:1", "gone.invalid:1"].map(str::to_owned);
    let a = Node::start("a", cluster.identity("a"), &names, &seeds);
    names.set("me.invalid:1", a.addr());
    let b = Node::start("b", cluster.identity("b"), &names, &[]);
    names.set("peer.invalid:1", b.addr());
    a.hub.until("the peer", |record| record.connected("b")).await;
    exchange((&a.hub, "a"), (&b.hub, "b"), "hello").await;
    names.until_asked("gone.invalid:1", 3).await;
    assert_eq!((names.asked("me.invalid:1"), names.asked("peer.invalid:1")), (1, 1));
    a.hub.read(|record| {
        assert_eq!((record.accepted, &record.refused, &record.rejected), (1, &vec![], &vec![]));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_seed_that_has_a_connection_already_is_dialed_again_when_that_ends() {
    let (cluster, names) = (Cluster::new(1), Names::default());
    let a = Node::start("a", cluster.identity("a"), &names, &["b.invalid:1", "gone.invalid:1"].map(str::to_owned));
    let b = Node::start("b", cluster.identity("b"), &names, &a.seed());
    a.hub.until("b dialed", |record| record.connected("b")).await;
    b.hub.until("b dialed", |record| record.connected("a")).await;
    names.set("b.invalid:1", b.addr());
    b.hub.until("a dialed too and was refused", |record| !record.refused.is_empty()).await;
    names.until_asked("gone.invalid:1", 3).await;
    assert_eq!(b.hub.read(|record| record.refused.clone()), [Refusal::AlreadyConnected(name("a"))]);
    a.hub.close("b");
    a.hub.until("closed", |record| record.closed.len() == 1).await;
    a.hub.until("there again", |record| record.accepted >= 2 && record.connected("b")).await;
    for node in [&a, &b] {
        assert_eq!(node.hub.read(|record| record.rejected.clone()), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replaced_certificate_is_shown_to_newcomers_and_disturbs_nobody() {
    let (cluster, names) = (Cluster::new(1), Names::default());
    let a = Node::start("a", cluster.identity("a"), &names, &[]);
    let b = Node::start("b", cluster.identity("b"), &names, &a.seed());
    a.hub.until("b", |record| record.connected("b")).await;

    let renewed = cluster.issue("a");
    let (ca, cert, key) = (&cluster.authority.cert_pem, &renewed.cert_pem, &renewed.key_pem);
    let identity = Identity::from_pem(ca.as_bytes(), cert.as_bytes(), key.as_bytes()).unwrap();
    a.transport.replace_identity(&identity).unwrap();

    let c = cluster.issue("c");
    let client = Stranger::with(&cluster, &c).client(2);
    let conn = client.connect(a.addr(), TLS_NAME).unwrap().await.unwrap();
    let shown = conn.peer_identity().unwrap().downcast::<Vec<CertificateDer<'static>>>().unwrap();
    assert_eq!(shown[0], CertificateDer::from_pem_slice(renewed.cert_pem.as_bytes()).unwrap());
    exchange((&a.hub, "a"), (&b.hub, "b"), "still here").await;
    assert!(a.hub.read(|record| record.closed.is_empty()));
}
