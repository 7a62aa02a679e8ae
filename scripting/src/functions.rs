//! Libraries of functions: Lua code that is loaded once and called by name. Independent of the
//! keyspace.
//!
//! Invariant: a function's name, in upper or lower case, belongs to one function among all
//! libraries. A library that cannot be loaded completely changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use lockwheel_resp::Reply;

use crate::bridge::{Chunk, Machine, Registered, StateKind, is_name};
use crate::limits::Limits;
use crate::math_random::MathRandom;
use crate::script::{Script, split_words};
use crate::{Host, convert};

/// The memory of a function outside Lua: its name twice, and its entries in the maps.
const FUNCTION_BYTES: usize = 256;

/// All libraries, and their Lua state, which is made when the first library is loaded.
pub struct Functions {
    limits: Limits,
    version: String,
    random: MathRandom,
    machine: Option<Machine>,
    libraries: BTreeMap<String, Library>,
    /// The library of each function, by the function's name in lower case.
    library_names: BTreeMap<String, String>,
    /// The size of the libraries' texts.
    text_bytes: usize,
}

/// A library: functions that were loaded together.
#[derive(Debug)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// The text it was loaded from.
    pub code: Bytes,
    /// The functions it has registered.
    pub functions: Vec<Function>,
    /// Its functions' share of the Lua state's memory.
    compiled_bytes: usize,
}

/// A function of a library.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The description given by its library.
    pub description: Option<Vec<u8>>,
    /// Its flags.
    pub script: Script,
    chunk: Chunk,
}

/// What `FUNCTION RESTORE` does with the existing libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Keep them. It is an error if a restored library has the name of an existing one.
    Append,
    /// Replace those that have the name of a restored library.
    Replace,
    /// Remove all of them.
    Flush,
}

impl Functions {
    /// Creates a set without libraries. `version` and `random` are as for an
    /// [`Interpreter`](crate::Interpreter).
    pub fn new(limits: Limits, version: &str, random: MathRandom) -> Functions {
        Functions {
            limits,
            version: version.to_owned(),
            random,
            machine: None,
            libraries: BTreeMap::new(),
            library_names: BTreeMap::new(),
            text_bytes: 0,
        }
    }

    /// Loads a library and returns its name. `host` is polled while its text runs, which registers
    /// its functions. The error is the line for the client.
    pub fn load(
        &mut self,
        code: &[u8],
        replace: bool,
        host: &mut dyn Host,
    ) -> Result<String, Reply> {
        let name = library_name(code)?;
        if !replace && self.libraries.contains_key(&name) {
            return Err(Reply::error(format!("ERR Library '{name}' already exists")));
        }
        let library = self.prepare(name.clone(), code, host)?;
        self.add_all(vec![library], Policy::Replace)?;
        Ok(name)
    }

    /// Loads all of several libraries, or none.
    pub fn restore(
        &mut self,
        codes: &[Vec<u8>],
        policy: Policy,
        host: &mut dyn Host,
    ) -> Result<(), Reply> {
        let mut libraries: Vec<Library> = Vec::new();
        for code in codes {
            let library = library_name(code).and_then(|name| {
                if libraries.iter().any(|other| other.name == name) {
                    return Err(Reply::error(format!("ERR Library '{name}' already exists")));
                }
                self.prepare(name, code, host)
            });
            match library {
                Ok(library) => libraries.push(library),
                Err(refusal) => {
                    libraries.iter().for_each(|library| self.forget(library));
                    return Err(refusal);
                }
            }
        }
        self.add_all(libraries, policy)
    }

    /// Removes a library. Returns false if there is none of that name.
    pub fn delete(&mut self, name: &[u8]) -> bool {
        let removed = std::str::from_utf8(name).ok().and_then(|name| self.take(name));
        let found = removed.is_some();
        removed.iter().for_each(|library| self.forget(library));
        found
    }

    /// Removes every library.
    pub fn flush(&mut self) {
        self.libraries.clear();
        self.library_names.clear();
        self.text_bytes = 0;
        self.machine = None;
    }

    /// The libraries by name.
    pub fn libraries(&self) -> impl ExactSizeIterator<Item = &Library> {
        self.libraries.values()
    }

    /// The number of functions.
    pub fn count(&self) -> usize {
        self.library_names.len()
    }

    /// The memory of libraries: their texts, and the Lua state with its garbage.
    pub fn memory_bytes(&self) -> usize {
        self.text_bytes + self.count() * FUNCTION_BYTES + self.lua_bytes()
    }

    /// Frees some of Lua's garbage. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        self.machine.as_mut().is_some_and(Machine::tidy)
    }

    /// Whether [`Functions::tidy`] has anything to free.
    pub fn has_garbage(&self) -> bool {
        self.machine.as_ref().is_some_and(Machine::has_garbage)
    }

    /// The memory of the Lua state alone.
    pub fn lua_bytes(&self) -> usize {
        self.machine.as_ref().map_or(0, Machine::memory_bytes)
    }

    /// The function of that name, in upper or lower case.
    pub fn get(&self, name: &[u8]) -> Option<&Function> {
        let library =
            self.library_names.get(&std::str::from_utf8(name).ok()?.to_ascii_lowercase())?;
        let mut functions = self.libraries.get(library)?.functions.iter();
        functions.find(|function| function.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Calls a function. Returns the reply for the client, or Redis's error line.
    pub fn run(
        &mut self,
        name: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let found = self.get(name).map(|function| (function.chunk, function.name.clone()));
        match (found, self.machine.as_mut()) {
            (Some((chunk, name)), Some(machine)) => {
                machine.run_function(chunk, &name, keys, args, host)
            }
            _ => Reply::error("ERR Function not found"),
        }
    }

    /// Compiles and runs a library's text, and collects the functions it registers.
    fn prepare(
        &mut self,
        name: String,
        code: &[u8],
        host: &mut dyn Host,
    ) -> Result<Library, Reply> {
        let error = |what: &str, message: &[u8]| {
            let line = [b"ERR ", what.as_bytes(), b": ", message].concat();
            Reply::Error(convert::one_line(line))
        };
        if code.len() > self.limits.script_bytes_max {
            return Err(error("Error compiling function", b"too long"));
        }
        // The end of the first line is kept, so that line numbers stay those of the text.
        let text = &code[code.iter().position(|byte| *byte == b'\n').unwrap_or(code.len())..];
        let machine = self.machine()?;
        let compiled = machine.compile(text);
        let compiled = compiled.map_err(|message| error("Error compiling function", &message))?;
        let (done, registered) = machine.load(compiled.chunk, host);
        machine.forget(compiled.chunk);
        let functions: Vec<Function> = registered.into_iter().map(Function::from).collect();
        let code = Bytes::copy_from_slice(code);
        let library = Library { name, code, functions, compiled_bytes: compiled.bytes() };
        let refusal = match done {
            Err(message) => Some(error("Error registering functions", &message)),
            Ok(()) if library.functions.is_empty() => {
                Some(Reply::error("ERR No functions registered"))
            }
            Ok(()) => None,
        };
        match refusal {
            Some(refusal) => {
                self.forget(&library);
                Err(refusal)
            }
            None => Ok(library),
        }
    }

    fn machine(&mut self) -> Result<&mut Machine, Reply> {
        if let Some(ref mut machine) = self.machine {
            return Ok(machine);
        }
        let random = self.random.clone();
        let machine = Machine::new(self.limits, &self.version, random, StateKind::Libraries);
        let machine = machine.map_err(|error| Reply::error(format!("ERR {error}")))?;
        Ok(self.machine.insert(machine))
    }

    /// Adds libraries to the existing ones.
    fn add_all(&mut self, libraries: Vec<Library>, policy: Policy) -> Result<(), Reply> {
        let is_removed = |library: &str| match policy {
            Policy::Append => false,
            Policy::Replace => libraries.iter().any(|new| new.name == library),
            Policy::Flush => true,
        };
        let refusal = self.collision(&libraries, is_removed);
        if let Some(refusal) = refusal {
            libraries.iter().for_each(|library| self.forget(library));
            return Err(refusal);
        }
        let names: Vec<String> =
            self.libraries.keys().filter(|name| is_removed(name)).cloned().collect();
        for name in names {
            self.take(&name).iter().for_each(|library| self.forget(library));
        }
        for library in libraries {
            for function in &library.functions {
                self.library_names.insert(function.name.to_ascii_lowercase(), library.name.clone());
            }
            self.text_bytes += library.code.len();
            self.libraries.insert(library.name.clone(), library);
        }
        Ok(())
    }

    /// The error for the first name that is already used by a library that is not removed.
    fn collision(&self, libraries: &[Library], is_removed: impl Fn(&str) -> bool) -> Option<Reply> {
        let mut seen = BTreeSet::new();
        for library in libraries {
            if self.libraries.contains_key(&library.name) && !is_removed(&library.name) {
                let name = &library.name;
                return Some(Reply::error(format!("ERR Library {name} already exists")));
            }
        }
        for function in libraries.iter().flat_map(|library| &library.functions) {
            let name = function.name.to_ascii_lowercase();
            let taken = self.library_names.get(&name).is_some_and(|library| !is_removed(library));
            if taken || !seen.insert(name) {
                let name = &function.name;
                return Some(Reply::error(format!("ERR Function {name} already exists")));
            }
        }
        None
    }

    fn take(&mut self, name: &str) -> Option<Library> {
        let library = self.libraries.remove(name)?;
        self.text_bytes -= library.code.len();
        for function in &library.functions {
            self.library_names.remove(&function.name.to_ascii_lowercase());
        }
        Some(library)
    }

    /// Releases a library's functions in Lua.
    fn forget(&mut self, library: &Library) {
        if let Some(machine) = &mut self.machine {
            library.functions.iter().for_each(|function| machine.forget(function.chunk));
            machine.count_compiled(library.compiled_bytes, 0);
            machine.tidy();
        }
    }
}

impl From<Registered> for Function {
    fn from(registered: Registered) -> Function {
        let Registered { name, description, script, function } = registered;
        Function { name, description, script, chunk: function }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("libraries", &self.libraries).finish_non_exhaustive()
    }
}

/// The name of a library, from its first line.
fn library_name(code: &[u8]) -> Result<String, Reply> {
    let refused = |text: &str| Err(Reply::error(format!("ERR {text}")));
    let Some(line) = code.strip_prefix(b"#!") else {
        return refused("Missing library metadata");
    };
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return refused("Invalid library metadata");
    };
    let Some(words) = split_words(&code[..end + 2]) else {
        return refused("Invalid library metadata");
    };
    let mut name = None;
    for word in words.iter().skip(1) {
        let Some(given) = word.strip_prefix(b"name=") else {
            let word = String::from_utf8_lossy(word);
            return refused(&format!("Invalid metadata value given: {word}"));
        };
        if name.replace(given).is_some() {
            return refused("Invalid metadata value, name argument was given multiple times");
        }
    }
    let Some(name) = name else { return refused("Library name was not given") };
    if !is_name(name) {
        return refused(
            "Library names can only contain letters, numbers, or underscores(_) and must be at \
             least one character long",
        );
    }
    let engine = words.first().and_then(|word| word.strip_prefix(b"#!")).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return refused(&format!("Engine '{}' not found", String::from_utf8_lossy(engine)));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}
