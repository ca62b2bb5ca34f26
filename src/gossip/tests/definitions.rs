//! Limits made at run time: told to all, by all.

use super::*;

impl Mesh {
    fn define(&mut self, at: usize, name: &str, value: Option<&str>) {
        let now = self.now(at);
        self.nodes[at].gossip.define(name, value.map(Into::into), &now).unwrap();
    }

    /// What each node has of a name; None: nothing, or that it was deleted.
    fn defined(&self, name: &str) -> Vec<Option<String>> {
        let value = |node: &Node| node.gossip.definitions().get(name)?.value.as_deref().map(str::to_owned);
        self.nodes.iter().map(value).collect()
    }

    fn all_defined(&self, name: &str, value: Option<&str>) -> bool {
        let alike = |node: &Node| node.gossip.definitions() == self.nodes[0].gossip.definitions();
        self.nodes.iter().all(alike) && self.defined(name).iter().all(|have| have.as_deref() == value)
    }
}

#[test]
fn definitions_go_to_nodes_that_are_not_connected_to_the_one_that_made_them() {
    let mut mesh = Mesh::new(3);
    mesh.connect(0, 1);
    mesh.connect(1, 2);
    mesh.run(SECOND);
    mesh.define(0, "x", Some("one"));
    mesh.run(SECOND);
    assert!(mesh.all_defined("x", Some("one")));
    mesh.define(2, "x", Some("two"));
    mesh.run(SECOND);
    assert!(mesh.all_defined("x", Some("two")));
    mesh.define(1, "x", None);
    mesh.run(SECOND);
    assert!(mesh.all_defined("x", None));
}

#[test]
fn of_both_sides_of_a_cut_the_later_clock_wins_and_who_knew_of_a_write_wins_over_it() {
    let mut mesh = Mesh::joined(3);
    // An hour ahead: what it writes would win for an hour, if others did not count on from what they have seen.
    mesh.nodes[2].ahead_ns = 3600 * SECOND;
    mesh.run(SECOND);
    mesh.define(2, "known", Some("ahead"));
    mesh.run(SECOND);
    mesh.define(0, "known", Some("after it"));
    mesh.run(SECOND);
    assert!(mesh.all_defined("known", Some("after it")));

    mesh.nodes[2].ahead_ns = 0;
    mesh.cut(0, 1);
    mesh.cut(1, 2);
    mesh.define(1, "changed", Some("first"));
    mesh.define(0, "deleted", Some("first"));
    mesh.run(SECOND);
    mesh.define(0, "changed", Some("second"));
    mesh.define(1, "deleted", None);
    mesh.run(SECOND);
    assert_eq!(mesh.defined("changed"), [Some("second".into()), Some("first".into()), Some("second".into())]);
    mesh.join_all();
    mesh.run(SECOND);
    assert!(mesh.all_defined("changed", Some("second")) && mesh.all_defined("deleted", None));
}

#[test]
fn a_node_that_was_away_gets_the_newest_and_what_it_wrote_itself_outlives_a_crash() {
    let mut mesh = Mesh::joined(2);
    mesh.define(0, "x", Some("old"));
    mesh.define(0, "gone", Some("old"));
    mesh.run(SECOND);
    mesh.define(1, "own", Some("its own"));
    mesh.nodes[1].commit();
    let disk = mesh.nodes[1].disk.clone();
    mesh.cut(0, 1);
    mesh.define(0, "x", Some("new"));
    mesh.define(0, "gone", None);
    mesh.restart(1, disk, true);
    assert_eq!(mesh.defined("x"), [Some("new".into()), Some("old".into())]);
    mesh.join_all();
    mesh.run(SECOND);
    assert!(mesh.all_defined("x", Some("new")) && mesh.all_defined("gone", None));
    assert!(mesh.all_defined("own", Some("its own")));
}

#[test]
fn many_large_ones_go_in_frames_of_bounded_size_and_nothing_is_told_twice() {
    let mut mesh = Mesh::joined(3);
    mesh.run(SECOND);
    let large = "x".repeat(crate::codec::MAX_DEFINITION_BYTES);
    for at in 0..8 {
        mesh.define(0, &format!("large-{at}"), Some(&large));
        mesh.define(0, &format!("small-{at}"), Some("x"));
    }
    mesh.run(SECOND);
    assert!(mesh.all_defined("large-7", Some(&large)));
    let now = mesh.now(0);
    let Node { gossip, engine, .. } = &mut mesh.nodes[0];
    let conns: Vec<ConnId> = gossip.conns.keys().copied().collect();
    for conn in conns {
        while let Next::Frame(frame) = gossip.poll(conn, &now, engine) {
            assert!(!matches!(Frame::decode(&frame), Ok(Frame::Definitions(_))));
        }
    }
}

#[test]
fn a_limit_of_a_file_is_known_by_its_node() {
    let mut mesh = Mesh::joined(2);
    let only = LimitSpec { name: "only-1".into(), limit: Some(1), window: Some("1s".into()), ..LimitSpec::default() };
    let more = LimitSet::of(limits().iter().cloned().chain([Arc::new(only.check().unwrap())]));
    mesh.nodes[1].gossip.set_limits(&more, &more);
    mesh.run(SECOND);
    let of = |mesh: &Mesh, limit: &str| mesh.nodes[0].gossip.defined_in_file_of(limit).cloned();
    assert_eq!(of(&mesh, "day"), Some(name(0)));
    assert_eq!(of(&mesh, "only-1"), Some(name(1)));
    assert_eq!(of(&mesh, "none"), None);
    mesh.nodes[1].gossip.set_limits(&more, &limits());
    mesh.run(SECOND);
    assert_eq!(of(&mesh, "only-1"), None);
}
