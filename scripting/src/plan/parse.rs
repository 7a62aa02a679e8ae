//! Parses a script's text to a plan, or finds the first construct outside the subset. Lua has
//! accepted the text.

use bytes::Bytes;

use super::builtins::{Builtin, BuiltinFunction, CallPosition, Results};
use super::commands::ARGUMENTS_MAX;
use super::execute::{ASSIGNED_MAX, PIECES_MAX, arithmetic};
use super::lexer::{Token, tokens};
use super::tree::{
    Block, CommandCall, Direct, Each, Expr, For, IndexedLocal, Operand, Operator, Plan, Statement,
    Unpacked,
};
use super::value_ref::TYPE_NAMES;
use crate::CommandId;
use crate::limits::Limits;
use crate::lua_number::write_argument;

pub(super) type Result<T> = std::result::Result<T, Outside>;

/// The first construct in a script that is not in the subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Counted from 1 at the start of the Lua text.
    pub line: u32,
    /// A noun phrase.
    pub what: &'static str,
}

const KEYWORDS: &[&str] = &[
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];
/// Priority of unary operators: as in Lua's parser, they bind more strongly than the binary
/// operators here.
const UNARY_PRIORITY: u8 = 8;

type Commands<'h> = &'h mut dyn FnMut(&[u8], usize) -> Option<CommandId>;

impl Plan {
    /// Parses a script. `commands` looks up the commands it names.
    pub(crate) fn read(text: &[u8], limits: &Limits, commands: Commands<'_>) -> Result<Plan> {
        let tokens = tokens(text, limits.plan_tokens_max)?;
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
            scope: Vec::new(),
            registers: 0,
            literals: Vec::new(),
            depth: 0,
            loops: 0,
            limits,
            commands,
        };
        let body = parser.block()?;
        match parser.peek() {
            Token::End => Ok(Plan { body, registers: parser.registers, literals: parser.literals }),
            _ => Err(parser.outside("a statement like this")),
        }
    }
}

/// An expression, and the function if it is a call and nothing else: not in parentheses, not
/// indexed, not an operand. Only such a call may have several values, or be a statement.
struct Parsed {
    expr: Expr,
    call: Option<&'static Builtin>,
}

impl Parsed {
    fn of_one_value(expr: Expr) -> Parsed {
        Parsed { expr, call: None }
    }

    /// How many values it has where nothing adjusts them to one.
    fn results(&self) -> Results {
        self.call.map_or(Results::One, |builtin| builtin.results)
    }
}

struct Parser<'t, 'h> {
    tokens: &'t [(Token<'t>, u32)],
    at: usize,
    /// The locals that are visible, by their registers.
    scope: Vec<&'t [u8]>,
    registers: usize,
    literals: Vec<Bytes>,
    depth: usize,
    loops: usize,
    limits: &'h Limits,
    commands: Commands<'h>,
}

// Tokens and names.
impl<'t> Parser<'t, '_> {
    fn peek(&self) -> &'t Token<'t> {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> &'t Token<'t> {
        self.tokens.get(self.at + count).map_or(&Token::End, |(token, _)| token)
    }

    fn outside(&self, what: &'static str) -> Outside {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |(_, line)| *line);
        Outside { line, what }
    }

    /// Takes the next token if it is this symbol or keyword.
    fn take(&mut self, wanted: &str) -> bool {
        let found = match self.peek() {
            Token::Symbol(symbol) => *symbol == wanted,
            Token::Name(name) => *name == wanted.as_bytes(),
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.take(wanted) { Ok(()) } else { Err(self.outside("an expression like this")) }
    }

    /// A name that is no keyword.
    fn name(&mut self) -> Result<&'t [u8]> {
        match self.peek() {
            Token::Name(name) if !is_keyword(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.outside("a name like this")),
        }
    }

    fn declare(&mut self, name: &'t [u8]) -> Result<u16> {
        if self.scope.len() >= self.limits.plan_locals_max {
            return Err(self.outside("so many locals"));
        }
        self.scope.push(name);
        self.registers = self.registers.max(self.scope.len());
        Ok((self.scope.len() - 1) as u16)
    }

    fn local(&self, name: &[u8]) -> Option<u16> {
        self.scope.iter().rposition(|known| *known == name).map(|at| at as u16)
    }

    fn literal(&mut self, text: &[u8]) -> u32 {
        let known = self.literals.iter().position(|literal| literal == text);
        let at = known.unwrap_or_else(|| {
            self.literals.push(Bytes::copy_from_slice(text));
            self.literals.len() - 1
        });
        at as u32
    }

    /// Parses `inner` one level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= self.limits.plan_depth_max {
            return Err(self.outside(DEEP));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Counts one more link of a chain, which nests to the left.
    fn link(&self, links: usize) -> Result<usize> {
        if links < self.limits.plan_depth_max { Ok(links + 1) } else { Err(self.outside(DEEP)) }
    }
}

const DEEP: &str = "nesting so deep";
const SEVERAL: &str = "a call of several values at the end of a list";
/// A constant that the subset leaves out. Lua keeps one for both 0 and -0, the first that it finds:
/// which one it takes for a negative zero computed at compile time depends on the rest of the text.
const ZERO: &str = "what may be a negative zero when it is compiled";

// Statements.
impl<'t> Parser<'t, '_> {
    /// Parses statements up to the end of a block, with a scope of their own.
    fn block(&mut self) -> Result<Block> {
        self.nested(|parser| {
            let visible = parser.scope.len();
            let mut statements = Vec::new();
            while !parser.ends_block() {
                statements.push(parser.statement()?);
                parser.take(";");
            }
            parser.scope.truncate(visible);
            Ok(statements.into())
        })
    }

    fn ends_block(&self) -> bool {
        match self.peek() {
            Token::Name(name) => matches!(*name, b"end" | b"else" | b"elseif" | b"until"),
            token => *token == Token::End,
        }
    }

    fn statement(&mut self) -> Result<Statement> {
        if self.take("local") {
            return self.local_statement();
        }
        if self.take("if") {
            return self.if_statement();
        }
        if self.take("while") {
            let condition = self.expression()?;
            return Ok(Statement::While { condition, body: self.loop_body()? });
        }
        if self.take("for") {
            let visible = self.scope.len();
            let statement = self.for_statement();
            self.scope.truncate(visible);
            return statement;
        }
        if self.take("do") {
            let body = self.block()?;
            self.expect("end")?;
            return Ok(Statement::Do(body));
        }
        if self.take("break") {
            return if self.loops > 0 {
                Ok(Statement::Break)
            } else {
                Err(self.outside("`break`"))
            };
        }
        if self.take("return") {
            return self.return_statement();
        }
        self.expression_statement()
    }

    fn local_statement(&mut self) -> Result<Statement> {
        let mut names = vec![self.name()?];
        while self.take(",") {
            names.push(self.name()?);
        }
        let mut values = if self.take("=") { self.values_of(names.len())? } else { Vec::new() };
        if let ([name], true) = (&names[..], values.len() <= 1) {
            let value = values.pop().unwrap_or(Expr::Nil);
            return Ok(Statement::Set(self.declare(name)?, value));
        }
        let locals =
            names.into_iter().map(|name| self.declare(name)).collect::<Result<Vec<_>>>()?;
        self.set_many(locals, values)
    }

    /// Parses the values of an assignment to this number of variables. Manual, 2.4.3: "If the list
    /// of expressions ends with a function call, then all values returned by that call enter the
    /// list of values, before the adjustment". That matters if there are fewer expressions than
    /// variables.
    fn values_of(&mut self, variables: usize) -> Result<Vec<Expr>> {
        let (values, results) = self.open_expressions()?;
        if results == Results::Several && values.len() < variables {
            return Err(self.outside(SEVERAL));
        }
        Ok(values)
    }

    fn set_many(&self, locals: Vec<u16>, values: Vec<Expr>) -> Result<Statement> {
        if locals.len().max(values.len()) > ASSIGNED_MAX {
            return Err(self.outside("so many values"));
        }
        Ok(Statement::SetMany(locals.into(), values.into()))
    }

    fn if_statement(&mut self) -> Result<Statement> {
        let mut arms = Vec::new();
        loop {
            let condition = self.expression()?;
            self.expect("then")?;
            arms.push((condition, self.block()?));
            if self.take("elseif") {
                continue;
            }
            let otherwise = if self.take("else") { self.block()? } else { Block::default() };
            self.expect("end")?;
            return Ok(Statement::If { arms: arms.into(), otherwise });
        }
    }

    /// Parses `do ... end` of a loop.
    fn loop_body(&mut self) -> Result<Block> {
        self.expect("do")?;
        self.loops += 1;
        let body = self.block();
        self.loops -= 1;
        let body = body?;
        self.expect("end")?;
        Ok(body)
    }

    fn for_statement(&mut self) -> Result<Statement> {
        let name = self.name()?;
        if self.take("=") {
            let from = self.expression()?;
            self.expect(",")?;
            let to = self.expression()?;
            let step = if self.take(",") { Some(self.expression()?) } else { None };
            let variable = self.declare(name)?;
            let body = self.loop_body()?;
            return Ok(Statement::For(Box::new(For { variable, from, to, step, body })));
        }
        let second = if self.take(",") { self.name()? } else { b"" };
        self.expect("in")?;
        let Some(ipairs) = self.take_builtin(CallPosition::Loop) else {
            return Err(self.outside("a loop over anything but `ipairs`"));
        };
        let [list] = self.arguments_of(ipairs)?;
        let index = self.declare(name)?;
        let value = self.declare(second)?;
        let body = self.loop_body()?;
        Ok(Statement::Each(Box::new(Each { index, value, list, body })))
    }

    fn return_statement(&mut self) -> Result<Statement> {
        if self.ends_block() || *self.peek() == Token::Symbol(";") {
            return Ok(Statement::Return(Expr::Nil));
        }
        if *self.peek() == Token::Symbol("{")
            && *self.ahead(1) == Token::Name(b"ok")
            && *self.ahead(2) == Token::Symbol("=")
        {
            self.at += 3;
            let text = self.expression()?;
            self.expect("}")?;
            return self.end_of_return(Statement::ReturnStatus(text));
        }
        if let Some(status_reply) = self.take_builtin(CallPosition::Return) {
            let [text] = self.arguments_of(status_reply)?;
            return self.end_of_return(Statement::ReturnStatus(text));
        }
        // Of several values the script's client gets the first: Redis asks Lua for one.
        let value = self.expression()?;
        self.end_of_return(Statement::Return(value))
    }

    /// Requires the end of the block after a return statement.
    fn end_of_return(&mut self, statement: Statement) -> Result<Statement> {
        if self.ends_block() || *self.peek() == Token::Symbol(";") {
            return Ok(statement);
        }
        Err(self.outside("a return of several values"))
    }

    /// Parses an assignment or a call.
    fn expression_statement(&mut self) -> Result<Statement> {
        if let Some(insert) = self.take_builtin(CallPosition::Statement) {
            let [list, value] = self.arguments_of(insert)?;
            return Ok(Statement::Insert { list, value });
        }
        let what = self.outside("a statement like this");
        let Parsed { expr, call } = self.suffixed()?;
        if *self.peek() == Token::Symbol("=") || *self.peek() == Token::Symbol(",") {
            return self.assignment(expr, what);
        }
        match call.map(|builtin| builtin.position) {
            Some(CallPosition::ExpressionOrStatement) => Ok(Statement::Evaluate(expr)),
            _ => Err(what),
        }
    }

    fn assignment(&mut self, first: Expr, what: Outside) -> Result<Statement> {
        match first {
            Expr::Index(parts) if self.take("=") => {
                let (Expr::Local(list), index) = *parts else { return Err(what) };
                Ok(Statement::Store { list, index, value: self.expression()? })
            }
            Expr::Local(local) if self.take("=") => {
                let mut values = self.values_of(1)?;
                match values.len() {
                    1 => Ok(Statement::Set(local, values.swap_remove(0))),
                    _ => self.set_many(vec![local], values),
                }
            }
            Expr::Local(local) => {
                let mut locals = vec![local];
                while self.take(",") {
                    let name = self.name()?;
                    match self.local(name) {
                        Some(local) if !locals.contains(&local) => locals.push(local),
                        _ => return Err(what),
                    }
                }
                self.expect("=")?;
                let values = self.values_of(locals.len())?;
                self.set_many(locals, values)
            }
            _ => Err(what),
        }
    }
}

// Expressions.
impl<'t> Parser<'t, '_> {
    /// Parses expressions between commas. Returns also how many values the last one has.
    fn open_expressions(&mut self) -> Result<(Vec<Expr>, Results)> {
        let mut all = Vec::new();
        loop {
            let parsed = self.open_expression()?;
            let results = parsed.results();
            all.push(parsed.expr);
            if !self.take(",") {
                return Ok((all, results));
            }
        }
    }

    /// Parses an expression where Lua adjusts its values to one.
    fn expression(&mut self) -> Result<Expr> {
        Ok(self.open_expression()?.expr)
    }

    /// Parses an expression where nothing adjusts its values: it may be the last of a list.
    fn open_expression(&mut self) -> Result<Parsed> {
        self.operators_above(0)
    }

    /// Parses an expression of operators that bind more strongly than `priority`.
    fn operators_above(&mut self, priority: u8) -> Result<Parsed> {
        self.nested(|parser| {
            let mut left = parser.operand()?;
            let mut links = 0;
            while let Some((symbol, binds_left, binds_right)) = parser.operator()
                && binds_left > priority
            {
                parser.at += 1;
                links = parser.link(links)?;
                let right = parser.operators_above(binds_right)?.expr;
                let Some(joined) = binary(symbol, left.expr, right) else {
                    return Err(parser.outside(ZERO));
                };
                match &joined {
                    Expr::Concat(pieces) if pieces.len() > PIECES_MAX => {
                        return Err(parser.outside("a text of so many pieces"));
                    }
                    _ => left = Parsed::of_one_value(joined),
                }
            }
            Ok(left)
        })
    }

    /// The next binary operator, and how strongly it binds to its left and right.
    fn operator(&self) -> Option<(&'t str, u8, u8)> {
        let symbol = match self.peek() {
            Token::Symbol(symbol) => symbol,
            Token::Name(b"and") => "and",
            Token::Name(b"or") => "or",
            _ => return None,
        };
        let (left, right) = match symbol {
            "or" => (1, 1),
            "and" => (2, 2),
            "==" | "~=" | "<" | "<=" | ">" | ">=" => (3, 3),
            ".." => (5, 4),
            "+" | "-" => (6, 6),
            "*" | "/" | "%" => (7, 7),
            _ => return None,
        };
        Some((symbol, left, right))
    }

    fn operand(&mut self) -> Result<Parsed> {
        let operator = ["not", "#", "-"].into_iter().find(|symbol| self.take(symbol));
        if let Some(operator) = operator {
            let operand = self.operators_above(UNARY_PRIORITY)?.expr;
            return Ok(Parsed::of_one_value(match (operator, operand) {
                ("not", operand) => Expr::Not(Box::new(operand)),
                ("#", operand) => Expr::Length(Box::new(operand)),
                (_, Expr::Number(0.0)) => return Err(self.outside(ZERO)),
                (_, Expr::Number(number)) => Expr::Number(-number),
                (_, operand) if may_be_numeral(&operand) => return Err(self.outside(ZERO)),
                (_, operand) => Expr::Minus(Box::new(operand)),
            }));
        }
        let value = match self.peek() {
            Token::Number(number) => Expr::Number(*number),
            Token::Text(text) => Expr::Literal(self.literal(text)),
            Token::Name(b"nil") => Expr::Nil,
            Token::Name(b"true") => Expr::Boolean(true),
            Token::Name(b"false") => Expr::Boolean(false),
            Token::Symbol("{") => return Ok(Parsed::of_one_value(self.list()?)),
            _ => return self.suffixed(),
        };
        self.at += 1;
        Ok(Parsed::of_one_value(value))
    }

    /// Parses `{e, ...}`, or the error table, which always leaves.
    fn list(&mut self) -> Result<Expr> {
        self.expect("{")?;
        let is_error = *self.peek() == Token::Name(b"err") && *self.ahead(1) == Token::Symbol("=");
        if is_error {
            self.at += 2;
            self.expression()?;
            self.expect("}")?;
            return Ok(Expr::Leave);
        }
        let (mut items, mut results) = (Vec::new(), Results::One);
        while *self.peek() != Token::Symbol("}") {
            let parsed = self.open_expression()?;
            results = parsed.results();
            items.push(parsed.expr);
            if !self.take(",") && !self.take(";") {
                break;
            }
        }
        self.expect("}")?;
        // Manual, 2.5.7: "If the last field in the list has the form exp and the expression is a
        // function call ..., then all values returned by the call ... enter the list
        // consecutively".
        if results == Results::Several {
            return Err(self.outside(SEVERAL));
        }
        Ok(Expr::List(items.into()))
    }

    /// Parses a name, a call or an expression in parentheses, and the indexes after it.
    fn suffixed(&mut self) -> Result<Parsed> {
        let mut parsed = if self.take("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            Parsed::of_one_value(inner)
        } else {
            let what = self.outside("a name that is not of the subset");
            let name = self.name().map_err(|_| what)?;
            match self.local(name) {
                Some(local) => Parsed::of_one_value(Expr::Local(local)),
                None => self.global(name, what)?,
            }
        };
        let mut links = 0;
        loop {
            links = self.link(links)?;
            let index = if self.take("[") {
                let index = self.expression()?;
                self.expect("]")?;
                index
            } else if self.take(".") {
                let name = self.name()?;
                Expr::Literal(self.literal(name))
            } else {
                break;
            };
            parsed = Parsed::of_one_value(index_expr(parsed.expr, index));
        }
        match self.peek() {
            Token::Symbol("(" | "{") | Token::Text(_) => Err(self.outside("a call like this")),
            _ => Ok(parsed),
        }
    }

    /// The meaning of a name that is no local.
    fn global(&mut self, name: &[u8], what: Outside) -> Result<Parsed> {
        match name {
            b"KEYS" => return Ok(Parsed::of_one_value(Expr::Keys)),
            b"ARGV" => return Ok(Parsed::of_one_value(Expr::Args)),
            _ => {}
        }
        let builtin = if Builtin::is_table(name) {
            self.expect(".").map_err(|_| what)?;
            Builtin::find(name, self.name()?)
        } else {
            Builtin::find(b"", name)
        };
        match builtin {
            Some(builtin) if builtin.position.is_expression() => {
                Ok(Parsed { expr: self.call(builtin)?, call: Some(builtin) })
            }
            _ => Err(what),
        }
    }

    /// Takes the name of a function that is allowed only here, unless a local hides it.
    fn take_builtin(&mut self, position: CallPosition) -> Option<&'static Builtin> {
        let Token::Name(first) = self.peek() else { return None };
        if self.local(first).is_some() {
            return None;
        }
        let (builtin, length) = match (self.ahead(1), self.ahead(2)) {
            (Token::Symbol("."), Token::Name(field)) => (Builtin::find(first, field), 3),
            _ => (Builtin::find(b"", first), 1),
        };
        let builtin = builtin.filter(|builtin| builtin.position == position)?;
        self.at += length;
        Some(builtin)
    }

    /// Parses the arguments of a call, as many as the function may have. The last one must not be a
    /// call of several values.
    fn arguments(&mut self, builtin: &Builtin) -> Result<Vec<Expr>> {
        let what = self.outside("a call like this");
        self.expect("(").map_err(|_| what)?;
        let mut arguments = Vec::new();
        if *self.peek() != Token::Symbol(")") {
            let (all, results) = self.open_expressions()?;
            if results == Results::Several {
                return Err(self.outside(SEVERAL));
            }
            arguments = all;
        }
        self.expect(")")?;
        if builtin.arguments.contains(&arguments.len()) { Ok(arguments) } else { Err(what) }
    }

    /// As [`Parser::arguments`], for a function that takes exactly `COUNT` arguments.
    fn arguments_of<const COUNT: usize>(&mut self, builtin: &Builtin) -> Result<[Expr; COUNT]> {
        let what = self.outside("a call like this");
        self.arguments(builtin)?.try_into().map_err(|_| what)
    }

    /// Parses the call of a function after its name.
    fn call(&mut self, builtin: &Builtin) -> Result<Expr> {
        if matches!(builtin.function, BuiltinFunction::Call | BuiltinFunction::ProtectedCall) {
            return self.command_call();
        }
        let mut arguments = self.arguments(builtin)?.into_iter();
        let mut next = || Box::new(arguments.next().unwrap_or(Expr::Nil));
        Ok(match builtin.function {
            BuiltinFunction::ReplicateCommands => Expr::Boolean(true),
            BuiltinFunction::Leave => Expr::Leave,
            BuiltinFunction::Assert => Expr::Assert(arguments.collect()),
            BuiltinFunction::ToNumber => Expr::ToNumber(next()),
            BuiltinFunction::ToString => Expr::ToText(next()),
            BuiltinFunction::Type => Expr::Type(self.type_names(), next()),
            BuiltinFunction::Max => Expr::Largest(arguments.collect()),
            BuiltinFunction::Min => Expr::Smallest(arguments.collect()),
            BuiltinFunction::Floor => Expr::Floor(next()),
            BuiltinFunction::Length => Expr::TextLength(next()),
            BuiltinFunction::Sub => {
                let mut next = || arguments.next().unwrap_or(Expr::Number(-1.0));
                Expr::Sub(Box::new((next(), next(), next())))
            }
            // Each of these is parsed where it is allowed.
            BuiltinFunction::Call
            | BuiltinFunction::ProtectedCall
            | BuiltinFunction::StatusReply
            | BuiltinFunction::IPairs
            | BuiltinFunction::Unpack
            | BuiltinFunction::Insert => return Err(self.outside("a call like this")),
        })
    }

    /// Parses the arguments of `redis.call`. The last may be `unpack(...)`.
    fn command_call(&mut self) -> Result<Expr> {
        self.expect("(")?;
        let (mut arguments, mut unpacked) = (Vec::new(), None);
        loop {
            if let Some(unpack) = self.take_builtin(CallPosition::LastArgument) {
                let mut inner = self.arguments(unpack)?.into_iter();
                let list = inner.next().unwrap_or(Expr::Nil);
                unpacked = Some(Unpacked { list, from: inner.next(), to: inner.next() });
                break;
            }
            let parsed = self.open_expression()?;
            let results = parsed.results();
            arguments.push(self.as_text(parsed.expr));
            if arguments.len() > ARGUMENTS_MAX {
                return Err(self.outside("so many arguments"));
            }
            if !self.take(",") {
                if results == Results::Several {
                    return Err(self.outside(SEVERAL));
                }
                break;
            }
        }
        self.expect(")")?;
        let name = match arguments.first() {
            Some(Expr::Literal(name)) if unpacked.is_none() => Some(*name as usize),
            _ => None,
        };
        let name = name.map(|at| self.literals[at].clone());
        let command = name.as_ref().and_then(|name| (self.commands)(name, arguments.len()));
        let direct = command.zip(name).and_then(|(command, name)| {
            let operands: Option<Box<[_]>> = arguments.iter().skip(1).map(Operand::of).collect();
            Some(Direct { command, name, operands: operands? })
        });
        let arguments = arguments.into();
        Ok(Expr::Call(Box::new(CommandCall { command, arguments, unpacked, direct })))
    }

    /// Converts a number in the script's text to an argument when the text is parsed.
    fn as_text(&mut self, argument: Expr) -> Expr {
        let Expr::Number(number) = argument else { return argument };
        if !number.is_finite() {
            return argument;
        }
        let mut text = Vec::new();
        write_argument(&mut text, number);
        Expr::Literal(self.literal(&text))
    }

    /// The index of the first name of a type among the literals.
    fn type_names(&mut self) -> u32 {
        let first = self.literals.len();
        self.literals.extend(TYPE_NAMES.iter().map(|name| Bytes::from_static(name.as_bytes())));
        first as u32
    }
}

fn is_keyword(name: &[u8]) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.as_bytes() == name)
}

/// Whether Lua's compiler may fold it to a number: it does so if the result of `and` and `or` is
/// certain, as in `nil or 0`.
fn may_be_numeral(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_) => true,
        Expr::And(both) | Expr::Or(both) => may_be_numeral(&both.1),
        _ => false,
    }
}

/// Builds `left symbol right`. Constants that Lua folds at compile time are folded here, too.
/// `None` if the result is or may be a negative zero.
fn binary(symbol: &str, left: Expr, right: Expr) -> Option<Expr> {
    let operator = match symbol {
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Modulo,
        ".." => return Some(concat(left, right)),
        _ => {
            let both = Box::new((left, right));
            return Some(match symbol {
                "and" => Expr::And(both),
                "or" => Expr::Or(both),
                "==" => Expr::Equal(both),
                "~=" => Expr::Not(Box::new(Expr::Equal(both))),
                "<" => Expr::Less(both),
                "<=" => Expr::LessOrEqual(both),
                ">" => Expr::Greater(both),
                _ => Expr::GreaterOrEqual(both),
            });
        }
    };
    if may_be_numeral(&left) && may_be_numeral(&right) {
        let (Expr::Number(left), Expr::Number(right)) = (&left, &right) else { return None };
        let divides = matches!(operator, Operator::Divide | Operator::Modulo);
        if !(divides && *right == 0.0) {
            let number = arithmetic(operator, *left, *right)?;
            if number == 0.0 && number.is_sign_negative() {
                return None;
            }
            if !number.is_nan() {
                return Some(Expr::Number(number));
            }
        }
    }
    Some(Expr::Arithmetic(operator, Box::new((left, right))))
}

/// Adds an operand in front of a chain of `..`, which Lua joins at once, from the last to the
/// first.
fn concat(left: Expr, right: Expr) -> Expr {
    let mut pieces = vec![left];
    match right {
        Expr::Concat(more) => pieces.extend(more.into_vec()),
        last => pieces.push(last),
    }
    Expr::Concat(pieces.into())
}

/// `value[index]`
fn index_expr(value: Expr, index: Expr) -> Expr {
    let place = match index {
        Expr::Number(number) if (1.0..=1e6).contains(&number) && number.fract() == 0.0 => {
            Some(number as u32 - 1)
        }
        _ => None,
    };
    match (value, place) {
        (Expr::Keys, Some(place)) => Expr::Key(place),
        (Expr::Args, Some(place)) => Expr::Arg(place),
        (table @ (Expr::Keys | Expr::Args), None) => match (IndexedLocal::read(&index), &table) {
            (Some(place), Expr::Keys) => Expr::KeyAt(place),
            (Some(place), _) => Expr::ArgAt(place),
            (None, _) => Expr::Index(Box::new((table, index))),
        },
        (value, _) => Expr::Index(Box::new((value, index))),
    }
}
