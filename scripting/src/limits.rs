//! The limits of scripts. There are no defaults: the embedding program sets every value.

/// The limits of scripts and of libraries of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the Lua state that a script may take while it runs or is compiled. A lock script
    /// needs a few kilobytes; a runaway script must fail before the process does. For functions of
    /// libraries it limits the whole state, which keeps the values that they leave in it.
    pub memory_bytes_max: usize,
    /// The length of one script. Lua's parser counts brackets and levels in `int`s; real scripts
    /// are far shorter.
    pub script_bytes_max: usize,
    /// The number of cached scripts that came with `EVAL`.
    pub eval_scripts_max: usize,
    /// The memory of these scripts together, with their functions and plans.
    pub eval_bytes_max: usize,
    /// The memory of the texts of loaded scripts together.
    pub loaded_bytes_max: usize,
    /// The memory of the functions and plans made from these texts together. Those of the least
    /// recently used scripts are removed, and made again when the script is used.
    pub compiled_bytes_max: usize,
    /// The number of functions of one library. Each stays in memory as long as the library.
    pub library_functions_max: usize,
    /// Steps of one pattern match in `string.find` and similar functions. Backtracking takes
    /// exponential time, and no hook can interrupt it.
    pub match_steps_max: u64,
    /// How deeply the tables of a reply may nest. Code that reads the reply recurses.
    pub nesting_max: usize,
    /// Lua instructions between two calls of [`Host::interrupt`](crate::Host::interrupt): some 10
    /// microseconds. Fewer while the state holds megabytes, because an instruction may then take
    /// longer.
    pub interrupt_instructions: u32,
    /// The number of tokens of a script in the fast tier. A longer script gains too little.
    pub plan_tokens_max: usize,
    /// How deeply statements, expressions and chains of operators may nest in the fast tier. Its
    /// parser and its interpreter recurse.
    pub plan_depth_max: usize,
    /// The number of locals in scope at once in the fast tier. The limit of Lua is 200.
    pub plan_locals_max: usize,
    /// The number of commands whose replies one run of the fast tier may keep. Lua gets the same
    /// replies if it has to take over.
    pub plan_calls_max: usize,
    /// The number of loop iterations and commands, about, after which the fast tier leaves a
    /// script to Lua.
    pub plan_steps_max: u64,
    /// The bytes of keys, arguments, replies and strings that one run of the fast tier may hold.
    /// Far below the limit of Lua, so that no script runs out of memory in one tier only.
    pub plan_bytes_max: usize,
}

impl Limits {
    /// The number of values that a table may hold when it is copied out of Lua. A table that
    /// contains itself twice is endless, and each value takes some 64 bytes outside Lua.
    pub(crate) fn values_max(&self) -> usize {
        self.memory_bytes_max / 64
    }
}
