//! Users on a server whose log is replicated.
//!
//! Users that commands change are a part of the state, so that they are the same on all nodes. A
//! cluster begins with the users of the configuration of each node. The first command that changes
//! users makes all users of the leader replicated, and from then on the configuration counts no
//! more: a node whose configuration has others must not let them in after a failover. The default
//! user is that of the configuration of each node, with the password of `requirepass`, until a
//! command changes it.
//!
//! A node that starts, or whose state is rebuilt, has the users of its configuration until it has
//! applied the log.

use crate::Engine;
use crate::acl::file::read_line;
use crate::acl::user::User;
use crate::acl::{DEFAULT_USER, Users};
use crate::sessions::ClientId;
use crate::store::users::UserRules;
use lockwheel_scripting::LogLevel;

impl Engine {
    /// Whether the default user is replicated: then `requirepass` must not change it.
    pub(crate) fn replicates_default_user(&self) -> bool {
        let rules = self.writer.state().users().rules();
        rules.is_some_and(|rules| rules.contains_key(DEFAULT_USER))
    }

    /// Replaces the users for a command: as [`Engine::change_users`], and records them if the log
    /// is replicated.
    pub(crate) fn replace_users(&mut self, users: Users, caller: Option<ClientId>) {
        if self.access.are_replicated {
            let is_local = !self.replicates_default_user()
                && users.default_user() == self.access.users.default_user();
            let replicated = users.iter().filter(|user| !is_local || user.name() != DEFAULT_USER);
            let text = |user: &User| (user.name().into(), user.rules().into());
            let rules: UserRules = replicated.map(|user| text(user)).collect();
            self.writer.set_users(rules);
        }
        self.change_users(users, caller);
    }

    /// Takes over the users of the state, if effects have changed them.
    pub(crate) fn adopt_users(&mut self) {
        if !self.writer.take_users_changed() {
            return;
        }
        let configured = &self.access.configured_users;
        let users = match self.writer.state().users().rules() {
            None => configured.clone(),
            Some(rules) => {
                let mut users = Users::new(User::clone(configured.default_user()));
                let mut errors = Vec::new();
                for (name, rules) in rules {
                    users.insert(self.read_user(name, rules).unwrap_or_else(|error| {
                        errors.push((LogLevel::Warning, error));
                        // No rights rather than some of them.
                        User::new(name, self.commands, false)
                    }));
                }
                self.script_messages.append(&mut errors);
                users
            }
        };
        self.change_users(users, None);
    }

    fn read_user(&self, name: &[u8], rules: &[u8]) -> Result<User, String> {
        let line = [b"user ", name, b" ", rules].concat();
        let place = format!("replicated user '{}'", String::from_utf8_lossy(name));
        read_line(&line, &place, self.commands, &self.settings)
            .map_err(|error| error.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::acl::ConfiguredUser;
    use crate::run::script::LogLevel;
    use crate::settings::{CompatVersion, Secret, Settings};
    use crate::store::snapshot::SnapshotProgress;
    use crate::testing::Stage;

    /// Settings with these users, which need no password and may do everything.
    fn with_users(names: &[&str]) -> Settings {
        let mut settings = Settings::default();
        let user =
            |name: &&str| ConfiguredUser::parse(&[name, "on", "nopass", "~*", "&*", "+@all"]);
        settings.users = names.iter().map(|name| user(name).expect("rules")).collect();
        settings
    }

    fn leader(settings: Settings) -> Stage {
        let mut stage = Stage::new(settings);
        stage.engine.lead(0, stage.time());
        stage
    }

    fn follower(settings: Settings) -> Stage {
        let mut stage = Stage::new(settings);
        stage.engine.follow();
        stage
    }

    /// Applies the effects that the leader has recorded since the last call.
    fn replicate(leader: &mut Stage, follower: &mut Stage) {
        let mut effects = Vec::new();
        leader.engine.take_units(|units| effects.extend_from_slice(units.effects));
        let time = follower.time();
        follower.engine.apply_committed(&effects, time.now, time).expect("effects");
        assert_eq!(follower.engine.digest(), leader.engine.digest());
    }

    #[test]
    fn configured_users_end_when_a_command_changes_users() {
        for (command, users) in [
            ("ACL SETUSER carol on >p", r#"["alice", "carol", "default"]"#),
            ("ACL DELUSER alice", r#"["default"]"#),
        ] {
            let mut leader = leader(with_users(&["alice"]));
            let mut follower = follower(with_users(&["bob"]));
            leader.check("SET k v");
            replicate(&mut leader, &mut follower);
            follower.check(r#"ACL USERS => ["bob", "default"]"#);
            leader.check(command);
            replicate(&mut leader, &mut follower);
            assert_eq!(follower.step("ACL USERS"), users, "{command}");
            assert_eq!(leader.step("ACL LIST"), follower.step("ACL LIST"), "{command}");
        }
    }

    #[test]
    fn default_user_is_local_until_a_command_changes_it() {
        let with_password = |password| {
            let mut settings = Settings::default();
            settings.requirepass = Some(Secret::new(password));
            settings
        };
        let mut leader = leader(with_password("a"));
        let mut follower = follower(with_password("b"));
        leader.check("AUTH a; ACL SETUSER u on nopass => OK; CONFIG SET requirepass c => OK");
        follower.check("AUTH b => OK; CONFIG SET requirepass d => OK");
        replicate(&mut leader, &mut follower);
        follower.check("c> AUTH c => !WRONGPASS ...; c> AUTH d => OK; c> AUTH u x => OK");
        leader.check("ACL SETUSER default >e => OK");
        replicate(&mut leader, &mut follower);
        follower.check("f> AUTH c => OK; f> AUTH e => OK; f> AUTH d => !WRONGPASS ...");
        let refusal = "!ERR CONFIG SET failed (possibly related to argument 'requirepass') - the \
                       default user is replicated: use ACL SETUSER on the leader";
        assert_eq!(leader.step("CONFIG SET timeout 7 requirepass g"), refusal);
        assert_eq!(follower.step("CONFIG SET requirepass g"), refusal);
        leader.check("CONFIG GET timeout => ...\"0\"...; b> AUTH e => OK");
    }

    #[test]
    fn followers_refuse_changes_of_users() {
        let mut follower = follower(with_users(&["bob"]));
        for command in ["ACL SETUSER bob off", "ACL DELUSER bob", "ACL LOAD"] {
            let refusal = "!READONLY You can't write against a read only replica.";
            assert_eq!(follower.step(command), refusal, "{command}");
        }
        follower.check(r#"ACL USERS => ["bob", "default"]"#);
    }

    #[test]
    fn connections_to_followers_lose_what_the_leader_takes_away() {
        let mut leader = leader(with_users(&["alice", "bob", "carol"]));
        let mut follower = follower(with_users(&["alice", "bob", "carol"]));
        follower.check("a> AUTH alice x; b> AUTH bob x; b> SUBSCRIBE news; c> AUTH carol x");
        let clients = ["a", "b", "c"].map(|name| follower.client(name));
        leader.check("ACL DELUSER alice; ACL SETUSER bob resetchannels; ACL SETUSER carol -info");
        replicate(&mut leader, &mut follower);
        let are_connected = clients.map(|client| follower.engine.session(client).is_some());
        assert_eq!(are_connected, [false, false, true]);
        follower.check("c> INFO => !NOPERM ...; c> ACL WHOAMI => \"carol\"");
    }

    #[test]
    fn rebuilt_node_begins_with_the_users_of_its_configuration() {
        let mut leader = leader(Settings::default());
        leader.check("ACL SETUSER u on");
        let mut follower = follower(with_users(&["bob"]));
        replicate(&mut leader, &mut follower);
        follower.check("CONFIG SET requirepass p; ACL USERS => [\"default\", \"u\"]");
        follower.engine.clear_state(follower.time()).expect("it is cleared");
        follower.check("b> AUTH p => OK; b> ACL USERS => [\"bob\", \"default\"]");
        assert_eq!(follower.engine.digest(), Stage::new(Settings::default()).engine.digest());
    }

    #[test]
    fn snapshot_has_the_users() {
        let mut leader = leader(with_users(&["alice"]));
        leader.check("ACL DELUSER alice");
        let mut follower = follower(with_users(&["bob"]));
        for change in ["ACL USERS", "ACL SETUSER u on >p >q (~a +get) +select|0 %R~b &c*"] {
            leader.check(change);
            leader.engine.begin_snapshot(leader.time());
            let mut part = Vec::new();
            let take = |effects: &[u8]| part.extend_from_slice(effects);
            let progress = leader.engine.snapshot_part(usize::MAX, take);
            assert_eq!(progress, SnapshotProgress::Complete);
            let time = follower.time();
            follower.engine.clear_state(time).expect("it is cleared");
            follower.engine.apply_committed(&part, time.now, time).expect("effects");
            assert_eq!(follower.engine.digest(), leader.engine.digest());
            assert_eq!(follower.step("ACL LIST"), leader.step("ACL LIST"));
        }
    }

    #[test]
    fn output_depends_on_changes_of_users() {
        let mut leader = leader(Settings::default());
        leader.check("GET k");
        assert_eq!(leader.engine.take_dependency(), 0);
        for (position, command) in [(1, "ACL SETUSER u on nopass"), (2, "ACL DELUSER u")] {
            leader.check(command);
            assert_eq!(leader.engine.take_dependency(), position);
            leader.check("b> AUTH u x");
            assert_eq!(leader.engine.take_dependency(), position);
            leader.engine.release_units(position, position);
        }
    }

    #[test]
    fn server_without_replication_records_no_users() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.start_log(0);
        let digest = stage.engine.digest();
        stage.check("ACL SETUSER u on nopass; ACL DELUSER u; ACL SETUSER default >p");
        stage.engine.take_units(|_| unreachable!("no effects"));
        assert_eq!(stage.engine.digest(), digest);
        stage.check("CONFIG SET requirepass q => OK");
    }

    #[test]
    fn user_with_rules_of_another_version_has_no_rights() {
        let version = |version| {
            let mut settings = Settings::default();
            settings.compat_version = version;
            settings
        };
        let mut leader = leader(version(CompatVersion::Redis84));
        let mut follower = follower(version(CompatVersion::Redis70));
        leader.check("ACL SETUSER u on nopass ~* +get +digest; ACL SETUSER v on nopass");
        replicate(&mut leader, &mut follower);
        let expected = "replicated user 'u': Error in applying operation '+digest': Unknown \
                        command or category name in ACL.";
        let messages = follower.engine.take_script_messages();
        assert_eq!(messages, [(LogLevel::Warning, expected.to_owned())]);
        follower.check("AUTH u x => !WRONGPASS ...; AUTH v x => OK");
    }
}
