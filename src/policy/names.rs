//! Which names in a condition nothing stands behind.
//!
//! A mistyped name would make a condition that never holds, silently; so it is found when the rule is read.

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr};

/// What a condition may name: the call, and the types of the language (`type(args.n) == int`).
const KNOWN: [&str; 12] =
    ["args", "tool", "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// The unknown names of an expression, each with the id of its place.
pub(super) fn unknown(expression: &IdedExpr) -> Vec<(u64, &str)> {
    let mut search = Search { bound: KNOWN.to_vec(), unknown: Vec::new() };
    search.visit(expression);
    search.unknown
}

/// A walk over the tree that knows which names the macros around it have bound.
struct Search<'a> {
    bound: Vec<&'a str>,
    unknown: Vec<(u64, &'a str)>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, at: &'a IdedExpr) {
        match &at.expr {
            Expr::Ident(name) => self.name(at.id, name),
            Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(|part| self.visit(part)),
            Expr::Select(select) => self.visit(&select.operand),
            Expr::List(list) => list.elements.iter().for_each(|element| self.visit(element)),
            Expr::Map(map) => self.entries(&map.entries),
            Expr::Struct(fields) => self.entries(&fields.entries),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified | Expr::Literal(_) => {}
        }
    }

    fn name(&mut self, id: u64, name: &'a str) {
        // Names with `@` are the macros' own.
        if !name.starts_with('@') && !self.bound.contains(&name) {
            self.unknown.push((id, name));
        }
    }

    fn entries(&mut self, entries: &'a [IdedEntryExpr]) {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => self.visit(&field.value),
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key);
                    self.visit(&entry.value);
                }
            }
        }
    }

    fn comprehension(&mut self, of: &'a ComprehensionExpr) {
        self.visit(&of.iter_range);
        self.visit(&of.accu_init);
        let outer = self.bound.len();
        self.bound.extend([of.iter_var.as_str(), of.accu_var.as_str()]);
        self.bound.extend(of.iter_var2.as_deref());
        for part in [&of.loop_cond, &of.loop_step, &of.result] {
            self.visit(part);
        }
        self.bound.truncate(outer);
    }
}
