//! A script's text to a plan, or what in it lies outside the subset. Lua has accepted the text.

use bytes::Bytes;

use super::call::ARGUMENTS_MAX;
use super::lexer::{Token, tokens};
use super::run::{ASSIGNED_MAX, PIECES_MAX};
use super::tree::{
    Block, Call, Direct, Each, Expr, For, Operand, Operator, Place, Plan, Statement, Unpacked,
};
use super::value::TYPE_NAMES;
use crate::CommandId;
use crate::budget::Limits;
use crate::number::write_argument;

pub(super) type Result<T> = std::result::Result<T, Outside>;

/// The first thing in a script that is not of the subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Counted from 1 where the Lua text begins.
    pub line: u32,
    /// A noun phrase.
    pub what: &'static str,
}

const KEYWORDS: &[&str] = &[
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];
/// As in Lua's parser: unary operators bind more than all binary ones here.
const UNARY_PRIORITY: u8 = 8;

type Commands<'h> = &'h mut dyn FnMut(&[u8], usize) -> Option<CommandId>;

impl Plan {
    /// Reads a script. `commands` looks up those that it names.
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

struct Parser<'t, 'h> {
    tokens: &'t [(Token<'t>, u32)],
    at: usize,
    /// The locals that are visible, by the register they live in.
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

    /// Goes one level deeper for `inner`.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= self.limits.plan_depth_max {
            return Err(self.outside(DEEP));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// One more link of a chain, which nests to the left.
    fn link(&self, links: usize) -> Result<usize> {
        if links < self.limits.plan_depth_max { Ok(links + 1) } else { Err(self.outside(DEEP)) }
    }
}

const DEEP: &str = "nesting so deep";

// Statements.
impl<'t> Parser<'t, '_> {
    /// Statements up to what ends a block, with a scope of their own.
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
            return Ok(Statement::While { condition, body: self.looped()? });
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
        let mut values = if self.take("=") { self.expressions()? } else { Vec::new() };
        if let ([name], true) = (&names[..], values.len() <= 1) {
            let value = values.pop().unwrap_or(Expr::Nil);
            return Ok(Statement::Set(self.declare(name)?, value));
        }
        let locals =
            names.into_iter().map(|name| self.declare(name)).collect::<Result<Vec<_>>>()?;
        self.set_many(locals, values)
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

    /// `do ... end` of a loop.
    fn looped(&mut self) -> Result<Block> {
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
            let body = self.looped()?;
            return Ok(Statement::For(Box::new(For { variable, from, to, step, body })));
        }
        let second = if self.take(",") { self.name()? } else { b"" };
        self.expect("in")?;
        if self.local(b"ipairs").is_some() || !self.take("ipairs") {
            return Err(self.outside("a loop over anything but `ipairs`"));
        }
        let list = self.single_argument()?;
        let index = self.declare(name)?;
        let value = self.declare(second)?;
        let body = self.looped()?;
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
        if self.is_global_field(b"redis", b"status_reply") {
            self.at += 3;
            let text = self.single_argument()?;
            return self.end_of_return(Statement::ReturnStatus(text));
        }
        let value = self.expression()?;
        self.end_of_return(Statement::Return(value))
    }

    /// Nothing may be done with what is returned.
    fn end_of_return(&mut self, statement: Statement) -> Result<Statement> {
        if self.ends_block() || *self.peek() == Token::Symbol(";") {
            return Ok(statement);
        }
        Err(self.outside("a return of several values"))
    }

    /// An assignment or a call.
    fn expression_statement(&mut self) -> Result<Statement> {
        if self.is_global_field(b"table", b"insert") {
            self.at += 3;
            self.expect("(")?;
            let list = self.expression()?;
            self.expect(",")?;
            let value = self.expression()?;
            self.expect(")")?;
            return Ok(Statement::Insert { list, value });
        }
        let what = self.outside("a statement like this");
        let first = self.suffixed()?;
        if *self.peek() == Token::Symbol("=") || *self.peek() == Token::Symbol(",") {
            return self.assignment(first, what);
        }
        match first {
            Expr::Call(_) | Expr::Assert(_) | Expr::Leave | Expr::Boolean(true) => {
                Ok(Statement::Run(first))
            }
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
                let mut values = self.expressions()?;
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
                let values = self.expressions()?;
                self.set_many(locals, values)
            }
            _ => Err(what),
        }
    }
}

// Expressions.
impl<'t> Parser<'t, '_> {
    fn expressions(&mut self) -> Result<Vec<Expr>> {
        let mut all = vec![self.expression()?];
        while self.take(",") {
            all.push(self.expression()?);
        }
        Ok(all)
    }

    fn expression(&mut self) -> Result<Expr> {
        self.above(0)
    }

    /// An expression of operators that bind more than `priority`.
    fn above(&mut self, priority: u8) -> Result<Expr> {
        self.nested(|parser| {
            let mut left = parser.operand()?;
            let mut links = 0;
            while let Some((symbol, binds_left, binds_right)) = parser.operator()
                && binds_left > priority
            {
                parser.at += 1;
                links = parser.link(links)?;
                let right = parser.above(binds_right)?;
                left = join(symbol, left, right);
                if matches!(&left, Expr::Concat(pieces) if pieces.len() > PIECES_MAX) {
                    return Err(parser.outside("a text of so many pieces"));
                }
            }
            Ok(left)
        })
    }

    /// The binary operator that is next, and how strongly it binds to its left and right.
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

    fn operand(&mut self) -> Result<Expr> {
        if self.take("not") {
            return Ok(Expr::Not(Box::new(self.above(UNARY_PRIORITY)?)));
        }
        if self.take("#") {
            return Ok(Expr::Length(Box::new(self.above(UNARY_PRIORITY)?)));
        }
        if self.take("-") {
            return match self.above(UNARY_PRIORITY)? {
                // Lua may take its own constant 0 for -0, or the other way round.
                Expr::Number(0.0) => Err(self.outside("a negative zero")),
                Expr::Number(number) => Ok(Expr::Number(-number)),
                operand => Ok(Expr::Minus(Box::new(operand))),
            };
        }
        let value = match self.peek() {
            Token::Number(number) => Expr::Number(*number),
            Token::Text(text) => Expr::Literal(self.literal(text)),
            Token::Name(b"nil") => Expr::Nil,
            Token::Name(b"true") => Expr::Boolean(true),
            Token::Name(b"false") => Expr::Boolean(false),
            Token::Symbol("{") => return self.list(),
            _ => return self.suffixed(),
        };
        self.at += 1;
        Ok(value)
    }

    /// `{e, ...}`, or the error that always leaves.
    fn list(&mut self) -> Result<Expr> {
        self.expect("{")?;
        let is_error = *self.peek() == Token::Name(b"err") && *self.ahead(1) == Token::Symbol("=");
        if is_error {
            self.at += 2;
            self.expression()?;
            self.expect("}")?;
            return Ok(Expr::Leave);
        }
        let mut items = Vec::new();
        while *self.peek() != Token::Symbol("}") {
            items.push(self.expression()?);
            if !self.take(",") && !self.take(";") {
                break;
            }
        }
        self.expect("}")?;
        Ok(Expr::List(items.into()))
    }

    /// A name, a call or an expression in brackets, and what is taken out of it.
    fn suffixed(&mut self) -> Result<Expr> {
        let mut value = if self.take("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            inner
        } else {
            let what = self.outside("a name that is not of the subset");
            let name = self.name().map_err(|_| what)?;
            match self.local(name) {
                Some(local) => Expr::Local(local),
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
            value = taken(value, index);
        }
        match self.peek() {
            Token::Symbol("(" | "{") | Token::Text(_) => Err(self.outside("a call like this")),
            _ => Ok(value),
        }
    }

    /// What a name stands for that is no local.
    fn global(&mut self, name: &[u8], what: Outside) -> Result<Expr> {
        let field = match name {
            b"redis" | b"math" | b"string" => {
                self.expect(".").map_err(|_| what)?;
                self.name()?
            }
            _ => b"",
        };
        match (name, field) {
            (b"KEYS", _) => Ok(Expr::Keys),
            (b"ARGV", _) => Ok(Expr::Args),
            (b"redis", b"call" | b"pcall") => self.call(),
            (b"redis", b"replicate_commands") => {
                self.expect("(")?;
                self.expect(")")?;
                Ok(Expr::Boolean(true))
            }
            (b"redis", b"error_reply") | (b"error", _) => {
                self.arguments(1..=2)?;
                Ok(Expr::Leave)
            }
            (b"tonumber", _) => Ok(Expr::ToNumber(Box::new(self.single_argument()?))),
            (b"tostring", _) => Ok(Expr::ToText(Box::new(self.single_argument()?))),
            (b"type", _) => {
                let operand = self.single_argument()?;
                Ok(Expr::Type(self.type_names(), Box::new(operand)))
            }
            (b"assert", _) => Ok(Expr::Assert(self.arguments(1..=2)?)),
            (b"math", b"max") => Ok(Expr::Largest(self.arguments(1..=usize::MAX)?)),
            (b"math", b"min") => Ok(Expr::Smallest(self.arguments(1..=usize::MAX)?)),
            (b"math", b"floor") => Ok(Expr::Floor(Box::new(self.single_argument()?))),
            (b"string", b"len") => Ok(Expr::TextLength(Box::new(self.single_argument()?))),
            (b"string", b"sub") => {
                let mut arguments = self.arguments(2..=3)?.into_vec().into_iter();
                let mut next = || arguments.next().unwrap_or(Expr::Number(-1.0));
                Ok(Expr::Sub(Box::new((next(), next(), next()))))
            }
            _ => Err(what),
        }
    }

    /// The arguments of a call between brackets, so many of them.
    fn arguments(&mut self, count: std::ops::RangeInclusive<usize>) -> Result<Box<[Expr]>> {
        let what = self.outside("a call like this");
        self.expect("(").map_err(|_| what)?;
        let arguments = self.expressions()?;
        self.expect(")")?;
        if count.contains(&arguments.len()) { Ok(arguments.into()) } else { Err(what) }
    }

    fn single_argument(&mut self) -> Result<Expr> {
        Ok(self.arguments(1..=1)?.into_vec().swap_remove(0))
    }

    /// The arguments of `redis.call`. The last may be `unpack(...)`.
    fn call(&mut self) -> Result<Expr> {
        self.expect("(")?;
        let (mut arguments, mut unpacked) = (Vec::new(), None);
        loop {
            let is_unpack = *self.peek() == Token::Name(b"unpack");
            if is_unpack && self.local(b"unpack").is_none() {
                self.at += 1;
                let mut inner = self.arguments(1..=3)?.into_vec().into_iter();
                let list = inner.next().unwrap_or(Expr::Nil);
                unpacked = Some(Unpacked { list, from: inner.next(), to: inner.next() });
                break;
            }
            let argument = self.expression()?;
            arguments.push(self.as_text(argument));
            if arguments.len() > ARGUMENTS_MAX {
                return Err(self.outside("so many arguments"));
            }
            if !self.take(",") {
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
        Ok(Expr::Call(Box::new(Call { command, arguments, unpacked, direct })))
    }

    /// A number that stands in the text is written as an argument once and for all.
    fn as_text(&mut self, argument: Expr) -> Expr {
        let Expr::Number(number) = argument else { return argument };
        let mut text = Vec::new();
        write_argument(&mut text, number);
        Expr::Literal(self.literal(&text))
    }

    /// Where the names of the types begin among the literals.
    fn type_names(&mut self) -> u32 {
        let first = self.literals.len();
        self.literals.extend(TYPE_NAMES.iter().map(|name| Bytes::from_static(name.as_bytes())));
        first as u32
    }

    /// Whether `table.field` is next, and `table` is no local.
    fn is_global_field(&self, table: &[u8], field: &[u8]) -> bool {
        *self.peek() == Token::Name(table)
            && *self.ahead(1) == Token::Symbol(".")
            && *self.ahead(2) == Token::Name(field)
            && self.local(table).is_none()
    }
}

fn is_keyword(name: &[u8]) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.as_bytes() == name)
}

/// `left symbol right`
fn join(symbol: &str, left: Expr, right: Expr) -> Expr {
    let operator = match symbol {
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Modulo,
        ".." => return concat(left, right),
        _ => {
            let both = Box::new((left, right));
            return match symbol {
                "and" => Expr::And(both),
                "or" => Expr::Or(both),
                "==" => Expr::Equal(both),
                "~=" => Expr::Not(Box::new(Expr::Equal(both))),
                "<" => Expr::Less(both),
                "<=" => Expr::LessOrEqual(both),
                ">" => Expr::Greater(both),
                _ => Expr::GreaterOrEqual(both),
            };
        }
    };
    Expr::Arithmetic(operator, Box::new((left, right)))
}

/// Lua joins a chain of `..` at once, from the last to the first.
fn concat(left: Expr, right: Expr) -> Expr {
    let mut pieces = vec![left];
    match right {
        Expr::Concat(more) => pieces.extend(more.into_vec()),
        last => pieces.push(last),
    }
    Expr::Concat(pieces.into())
}

/// `value[index]`
fn taken(value: Expr, index: Expr) -> Expr {
    let place = match index {
        Expr::Number(number) if (1.0..=1e6).contains(&number) && number.fract() == 0.0 => {
            Some(number as u32 - 1)
        }
        _ => None,
    };
    match (value, place) {
        (Expr::Keys, Some(place)) => Expr::Key(place),
        (Expr::Args, Some(place)) => Expr::Arg(place),
        (table @ (Expr::Keys | Expr::Args), None) => match (Place::read(&index), &table) {
            (Some(place), Expr::Keys) => Expr::KeyAt(place),
            (Some(place), _) => Expr::ArgAt(place),
            (None, _) => Expr::Index(Box::new((table, index))),
        },
        (value, _) => Expr::Index(Box::new((value, index))),
    }
}
