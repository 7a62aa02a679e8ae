//! How much a script may use. Knows only numbers.

/// Every bound on scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the Lua state that a script may take while it runs or is compiled. A lock script
    /// needs a few kilobytes; a runaway one must fail before the process does. For functions of
    /// libraries it bounds the whole state, which keeps what they leave in it.
    pub memory_bytes_max: usize,
    /// The length of one script. Lua's parser counts brackets and levels in `int`s, and no
    /// honest script comes near.
    pub script_bytes_max: usize,
    /// Scripts cached of those that came with `EVAL`.
    pub passing_scripts_max: usize,
    /// What these may take together, with their functions and plans.
    pub passing_bytes_max: usize,
    /// What the texts of loaded scripts may take together.
    pub kept_bytes_max: usize,
    /// What the functions and plans made from these texts may take together. Those of the scripts
    /// that were used least recently are removed, and made again when the script is used.
    pub ready_bytes_max: usize,
    /// Functions of one library. Each stays in memory until the library goes.
    pub library_functions_max: usize,
    /// Steps of one pattern match in `string.find` and its kin. Backtracking is exponential and
    /// no hook can stop it half way.
    pub match_steps_max: u64,
    /// How deeply the tables of a reply may nest. Whoever reads it recurses.
    pub nesting_max: usize,
    /// Lua instructions between two questions to the host whether to go on: some 10 microseconds.
    /// Fewer while the state holds megabytes, for an instruction may take longer then.
    pub interrupt_instructions: u32,
    /// Words and signs of a script that the fast tier looks at. A longer one is not worth it.
    pub plan_tokens_max: usize,
    /// How deeply statements, expressions and chains of operators may nest in the fast tier, whose
    /// reader and runner recurse.
    pub plan_depth_max: usize,
    /// Locals that may be in scope at once in the fast tier. Lua itself takes 200.
    pub plan_locals_max: usize,
    /// Commands one run of the fast tier may keep the replies of: what Lua would be told again,
    /// should it have to take over.
    pub plan_calls_max: usize,
    /// Turns of loops and commands after which the fast tier leaves a script to Lua, about.
    pub plan_steps_max: u64,
    /// Bytes of keys, arguments, replies and texts one run of the fast tier may hold. Far below
    /// what Lua may hold, so that no script ends for want of memory in one tier only.
    pub plan_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes_max: 64 << 20,
            script_bytes_max: 1 << 20,
            passing_scripts_max: 500,
            passing_bytes_max: 32 << 20,
            kept_bytes_max: 256 << 20,
            ready_bytes_max: 16 << 20,
            library_functions_max: 1_000,
            match_steps_max: 10_000_000,
            nesting_max: 256,
            interrupt_instructions: 1_000,
            plan_tokens_max: 4_096,
            plan_depth_max: 48,
            plan_locals_max: 64,
            plan_calls_max: 512,
            plan_steps_max: 10_000,
            plan_bytes_max: 1 << 20,
        }
    }
}

impl Limits {
    /// Values a table that crosses the bridge may hold: a table that contains itself twice is
    /// endless, and each value takes some 64 bytes outside Lua.
    pub(crate) fn values_max(&self) -> usize {
        self.memory_bytes_max / 64
    }
}
