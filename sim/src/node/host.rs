//! What runs on a host, from each start of its process to its crash or the end: the node, its clients, and whoever looks
//! at it and changes its configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::node::{Inspector, Node};
use tidegate::time::MS;
use tokio::task::JoinSet;

use super::clients::Asker;
use super::clock::{elapsed_ns, sleep_until_ms};
use super::machine::Machine;
use crate::schedule::{Ask, What};

/// How often each node's state is looked at in a run of a few seconds, milliseconds.
const LOOK_MS: u64 = 20;
/// Looks at a node in a run at most: longer runs are looked at less often.
const MOST_LOOKS: u64 = 400;

/// All of it.
pub async fn live(machine: Arc<Machine>) -> turmoil::Result {
    let node = machine.start().await?;
    let (inspector, from_ms) = (node.inspector(), elapsed_ns() / MS);
    let mut tasks = JoinSet::new();
    tasks.spawn(look(Arc::clone(&machine), inspector.clone()));
    tasks.spawn(clients(Arc::clone(&machine), inspector, from_ms));
    tokio::try_join!(all(tasks), change_limits(&machine, &node, from_ms))?;
    let mut stop = machine.common.stop.clone();
    stop.wait_for(|stop| *stop).await?;
    node.stop().await;
    Ok(())
}

async fn all(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Looks at the node's state until all is settled.
async fn look(machine: Arc<Machine>, node: Inspector) -> anyhow::Result<()> {
    let (record, settled_ms) = (&machine.common.record, machine.common.schedule.settled_ms());
    let every_ms = LOOK_MS.max(settled_ms / MOST_LOOKS);
    let mut at_ms = elapsed_ns() / MS;
    while at_ms < settled_ms {
        // At the same times on all nodes.
        at_ms = ((at_ms / every_ms + 1) * every_ms).min(settled_ms);
        sleep_until_ms(at_ms).await;
        record.look(&node, elapsed_ns());
        record.tell(&node);
    }
    record.settled(machine.index, &node);
    Ok(())
}

/// The clients of this node, one a key: first the load, then, when every node was looked at for the last time, the
/// trials.
async fn clients(machine: Arc<Machine>, node: Inspector, from_ms: u64) -> anyhow::Result<()> {
    let schedule = &machine.common.schedule;
    let mut asks: BTreeMap<usize, Vec<(u64, Ask)>> = BTreeMap::new();
    for (at_ms, ask) in schedule.asks().filter(|(at_ms, ask)| ask.node == machine.index && *at_ms >= from_ms) {
        asks.entry(ask.key).or_default().push((at_ms, *ask));
    }
    let asker = |key| Asker::new(Arc::clone(&machine), node.clone(), key);
    let mut load = JoinSet::new();
    for (key, asks) in asks {
        load.spawn(asker(key).load(asks));
    }
    all(load).await?;
    sleep_until_ms(schedule.settled_ms() + 1).await;
    let mut trials = JoinSet::new();
    for (key, _) in schedule.keys.iter().enumerate().filter(|(_, plan)| plan.tried_at == Some(machine.index)) {
        trials.spawn(asker(key).try_promises());
    }
    all(trials).await
}

/// The node's configuration changes while it runs; what it was at the start the node knows.
async fn change_limits(machine: &Machine, node: &Node, from_ms: u64) -> anyhow::Result<()> {
    let changes = machine.common.schedule.events.iter().filter(|event| {
        event.at_ms > from_ms && matches!(event.what, What::Limit { node, .. } if node == machine.index)
    });
    for event in changes {
        sleep_until_ms(event.at_ms).await;
        node.install(machine.limits(event.at_ms)?);
    }
    Ok(())
}
