//! Draws the screen of `lockwheel locks --watch`. It has the words of the page of locks, and
//! emphasizes without colours what it also colours.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::reading::{Client, Details, Event, Lock};
use super::text::{columns, follower_note, printable, shortened, span, time_of_day, wrapped};
use super::view::{Opened, View};

/// The least size of the terminal.
const COLUMNS_MIN: u16 = 40;
const LINES_MIN: u16 = 10;
/// The most lines above the table, whose own head and the line at the bottom follow.
const HEAD_LINES_MAX: usize = LINES_MIN as usize - 3;
/// From this width on there is place for all columns, and for words in full.
const COLUMNS_WIDE: usize = 60;

/// The widths of columns with a number, and with a span.
const WAITING: usize = 7;
const SPAN: usize = 8;
/// No name or address needs more.
const HOLDER_MAX: usize = 44;
const DISCONNECTED: &str = "disconnected";

const PLAIN: Style = Style::new();
const STRONG: Style = Style::new().bold();

/// How alarms are emphasized.
pub(super) fn alarm(has_colors: bool) -> Style {
    if has_colors { STRONG.fg(Color::Red) } else { STRONG }
}

/// Draws the table of locks, or the details of the opened lock. Sets the page and the first visible
/// line of the view to fit the window.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, alarm: Style) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < LINES_MIN {
        let text = format!("{COLUMNS_MIN}x{LINES_MIN} is the least size");
        return frame.render_widget(Paragraph::new(text), area);
    }
    let width = usize::from(area.width);
    let mut lines = head(view, width, alarm);
    let page = usize::from(area.height) - lines.len() - 1;
    let mut body = if let Some(opened) = &view.opened {
        let all = details(opened, view, width, alarm);
        view.page = page;
        view.top = view.top.min(all.len().saturating_sub(page));
        all.into_iter().skip(view.top).take(page).collect()
    } else {
        lines.push(head_of_table(width));
        view.page = page - 1;
        let last = view.rows.len().saturating_sub(view.page);
        let least = (view.selected + 1).saturating_sub(view.page);
        view.top = view.top.min(view.selected).max(least).min(last);
        table(view, width, alarm)
    };
    if view.lost.is_some() {
        body = body.into_iter().map(|line: Line<'_>| line.patch_style(PLAIN.dim())).collect();
    }
    lines.extend(body);
    frame.render_widget(Paragraph::new(lines), area);
    let bottom = Rect { y: area.height - 1, height: 1, ..area };
    frame.render_widget(Paragraph::new(keys(view, width)), bottom);
}

/// The server, the figures, the order, and what is special about the state.
fn head(view: &View, width: usize, alarm: Style) -> Vec<Line<'static>> {
    let state = &view.state;
    let shown = match view.rows.len() == state.locks.len() {
        true => state.locks.len().to_string(),
        false => format!("{} of {}", view.rows.len(), state.locks.len()),
    };
    let mut figures = format!("Locks {shown}");
    // A follower does not know of waiting clients.
    if state.leader.is_none() {
        let (waiting, longest) = view.waiting();
        figures += &format!("  Waiting {waiting}");
        if let Some((ms, is_longer)) = longest {
            figures += &format!("  Longest wait {}{}", if is_longer { ">" } else { "" }, span(ms));
        }
    }
    let mut order = format!("Sorted by {}", view.order);
    if !view.filter.is_empty() {
        order += &format!(", filter {}", printable(&view.filter));
    }
    let time = time_of_day(state.at_ms);
    let is_wide = width >= COLUMNS_WIDE;
    let fit = |text: &str, omitted: &str| {
        if is_wide { text.to_owned() } else { text.replace(omitted, "") }
    };
    let role = fit(&state.role, "version ");
    let right = fit(&format!("State of {time} UTC"), "State of ");
    let mut lines = vec![
        Line::styled(ends(&printable(&view.address), &printable(&role), width), STRONG),
        Line::raw(shortened(&fit(&figures, " wait"), width)),
        Line::raw(ends(&order, &right, width)),
    ];
    let lost = view.lost.as_ref().map(|reason| {
        let reason = printable(reason);
        format!(
            "No connection to the locks: {reason}. What is shown is the state of {time} UTC. \
             Reconnecting"
        )
    });
    let banners = [(lost, alarm), (state.leader.as_deref().map(follower_note), STRONG)];
    for (text, style) in banners {
        let texts = text.map(|text| wrapped(&text, width)).unwrap_or_default();
        lines.extend(texts.into_iter().map(|it| Line::styled(it, style.reversed())));
    }
    // A row of the table has place in every case.
    lines.truncate(HEAD_LINES_MAX);
    lines
}

/// Two texts at the ends of a line. The first one is shortened if there is no room.
fn ends(left: &str, right: &str, width: usize) -> String {
    let right = shortened(right, width * 2 / 3);
    let left = shortened(left, width - columns(&right) - 1);
    format!("{left}{}{right}", " ".repeat(width - columns(&left) - columns(&right)))
}

/// The widths of key and holder, and the space between columns.
fn widths(width: usize) -> (usize, usize, usize) {
    let is_wide = width >= COLUMNS_WIDE;
    let gap = if is_wide { 2 } else { 1 };
    let others = WAITING + gap + SPAN + if is_wide { SPAN + gap } else { 0 };
    let left = width - others - 2 * gap;
    let holder = (left / 2).clamp(DISCONNECTED.len(), HOLDER_MAX);
    (left - holder, holder, gap)
}

/// A line of the table. The last three columns are numbers.
fn row(
    width: usize,
    key: &str,
    holder: Vec<Span<'static>>,
    ends: [Span<'static>; 3],
) -> Line<'static> {
    let (key_width, holder_width, gap) = widths(width);
    let padded = |text: &str, width: usize| " ".repeat(width.saturating_sub(columns(text)));
    let gap = " ".repeat(gap);
    let key = shortened(key, key_width);
    let mut spans = vec![Span::raw(key.clone() + &padded(&key, key_width) + &gap)];
    let holder_columns: usize = holder.iter().map(Span::width).sum();
    spans.extend(holder);
    spans.push(Span::raw(" ".repeat(holder_width.saturating_sub(holder_columns))));
    for (column, span) in ends.into_iter().enumerate() {
        // How long a lock is held is left out first.
        if column != 1 || width >= COLUMNS_WIDE {
            let column_width = if column == 0 { WAITING } else { SPAN };
            spans.push(Span::raw(gap.clone() + &padded(&span.content, column_width)));
            spans.push(span);
        }
    }
    Line::from(spans)
}

fn head_of_table(width: usize) -> Line<'static> {
    let line =
        row(width, "Key", vec!["Holder".into()], ["Waiting", "Held for", "Lease"].map(Span::raw));
    line.style(STRONG.underlined())
}

/// The rows that are visible, or why there are none.
fn table(view: &View, width: usize, alarm: Style) -> Vec<Line<'static>> {
    if view.rows.is_empty() {
        let text = match (view.state.locks.is_empty(), &view.lost) {
            (false, _) => "No lock matches the filter",
            (true, Some(_)) => "It is not known which locks are held",
            (true, None) => "No lock is held",
        };
        return vec![Line::raw(text)];
    }
    let visible = view.rows.iter().enumerate().skip(view.top).take(view.page);
    let lines = visible.map(|(at, &place)| {
        let line = lock_row(&view.state.locks[place], view, width, alarm);
        if at == view.selected { line.patch_style(PLAIN.reversed()) } else { line }
    });
    lines.collect()
}

fn lock_row(lock: &Lock, view: &View, width: usize, alarm: Style) -> Line<'static> {
    let mut key = printable(&lock.key);
    if lock.database != 0 {
        key += &format!(" (database {})", lock.database);
    }
    let waiting = match (lock.waiters.len(), &view.state.leader) {
        (_, Some(_)) => Span::raw("?"),
        (0, None) => Span::raw("0"),
        (count, None) => Span::styled(count.to_string(), STRONG),
    };
    let holder = holder(&lock.holders, widths(width).1, alarm);
    let held = held_for(lock, view.state.now_ms);
    row(width, &key, holder, [waiting, Span::raw(held), lease(lock, alarm)])
}

/// The first holder, and whether one is disconnected.
fn holder(holders: &[Client], width: usize, alarm: Style) -> Vec<Span<'static>> {
    let first = holders.first().map_or("none".to_owned(), |it| printable(&it.label()));
    let more = holders.len().saturating_sub(1);
    let text = if more == 0 { first } else { format!("{first} and {more} more") };
    if !holders.iter().any(Client::is_disconnected) {
        return vec![Span::raw(shortened(&text, width))];
    }
    let left = width.saturating_sub(DISCONNECTED.len() + 1);
    let gone = Span::styled(DISCONNECTED, alarm);
    // Less than this says nothing.
    if left < 6 { vec![gone] } else { vec![Span::raw(shortened(&text, left) + " "), gone] }
}

fn lease(lock: &Lock, alarm: Style) -> Span<'static> {
    match lock.lease_ms {
        None => Span::styled("no lease", alarm),
        Some(ms) => Span::raw(span(ms)),
    }
}

fn held_for(lock: &Lock, now_ms: i64) -> String {
    if lock.since_ms == 0 { "?".to_owned() } else { span((now_ms - lock.since_ms).max(0)) }
}

/// The lines about one lock.
fn details(opened: &Opened, view: &View, width: usize, alarm: Style) -> Vec<Line<'static>> {
    let mut lines = vec![(STRONG.underlined(), printable(&opened.key))];
    let mut add = |style: Style, text: String| lines.push((style, text));
    match &opened.details {
        None if view.lost.is_some() => add(PLAIN, "Its details are not known".to_owned()),
        None => add(PLAIN, "Reading the lock".to_owned()),
        Some(details) => {
            match &details.lock {
                None => add(PLAIN, "This lock is not held now.".to_owned()),
                Some(lock) => facts(lock, details, alarm, &mut add),
            }
            match &details.leader {
                Some(leader) => add(STRONG, follower_note(leader)),
                None => history(details, &mut add),
            }
        }
    }
    let wrapped = |(style, text): (Style, String)| {
        wrapped(&text, width).into_iter().map(move |text| Line::styled(text, style))
    };
    lines.into_iter().flat_map(wrapped).collect()
}

fn facts(lock: &Lock, details: &Details, alarm: Style, add: &mut impl FnMut(Style, String)) {
    let left = lease(lock, alarm);
    let full = lock.lease_full_ms.map(|ms| format!(" of {}", span(ms))).unwrap_or_default();
    add(left.style, format!("Lease      {}{full}", left.content));
    add(PLAIN, format!("Held for   {}", held_for(lock, details.now_ms)));
    add(PLAIN, format!("Renewals   {}", lock.renewals));
    add(PLAIN, format!("Refused    {} in the last minute", lock.refusals));
    add(PLAIN, format!("Kind       {}, {}: {}", lock.kind, lock.confidence, lock.reason));
    add(PLAIN, format!("Database   {}", lock.database));
    add(STRONG, "Holders".to_owned());
    for holder in &lock.holders {
        let times =
            if holder.count > 1 { format!(", {} times", holder.count) } else { String::new() };
        add(PLAIN, format!("  {}{times}", client_text(holder)));
        if holder.is_disconnected() {
            add(alarm, format!("    {DISCONNECTED}"));
        }
        if let Some(owner) = &holder.owner {
            add(PLAIN, format!("    owner {}", printable(owner)));
        }
        if let Some(token) = holder.token {
            add(PLAIN, format!("    fencing token {token}"));
        }
        if let Some(meta) = &holder.meta {
            add(PLAIN, format!("    META {}", printable(meta)));
        }
    }
    if details.leader.is_none() {
        add(STRONG, format!("Waiting, in order: {}", lock.waiters.len()));
        for (place, waiter) in lock.waiters.iter().enumerate() {
            add(PLAIN, format!("  {}. {}, {}", place + 1, client_text(waiter), waiter.how));
        }
    }
}

/// The last events. Refused attempts without another event between them are one line.
fn history(details: &Details, add: &mut impl FnMut(Style, String)) {
    add(STRONG, "History, latest first".to_owned());
    let known = details.lock.iter().flat_map(|lock| lock.holders.iter().chain(&lock.waiters));
    let known: Vec<&Client> = known.filter(|client| !client.address.is_empty()).collect();
    let name = |id: u64| match known.iter().find(|client| client.client == id) {
        Some(client) => printable(&client.label()),
        None if id == 0 => String::new(),
        None => format!("client {id}"),
    };
    let is_refusal = |event: &Event| event.event == "refused";
    let mut events: Vec<&Event> = details.history.iter().collect();
    events.reverse();
    for group in events.chunk_by(|a, b| is_refusal(a) && is_refusal(b)) {
        let Event { at_ms, event, client } = group[0];
        let times = match group.len() {
            1 => String::new(),
            count => format!("{count} times, the last one by "),
        };
        let time = format!("{}.{:03}", time_of_day(*at_ms), at_ms.rem_euclid(1000));
        add(PLAIN, format!("  {time}  {event:8}  {times}{}", name(*client)).trim_end().into());
    }
}

fn client_text(client: &Client) -> String {
    if client.address.is_empty() {
        return match client.client {
            0 => "client not known".to_owned(),
            id => format!("client {id}"),
        };
    }
    let name = if client.name.is_empty() { String::new() } else { printable(&client.name) + ", " };
    let (address, user) = (printable(&client.address), printable(&client.user));
    format!("{name}{address}, user {user}, client {}", client.client)
}

/// The line at the bottom.
fn keys(view: &View, width: usize) -> Line<'static> {
    if view.is_typing {
        let filter = shortened(&printable(&view.filter), width - "Filter: _".len());
        return Line::raw(format!("Filter: {filter}_"));
    }
    Line::raw(match (view.opened.is_some(), width >= COLUMNS_WIDE) {
        (true, _) => "Arrows scroll  Esc back  q end",
        (false, true) if view.filter.is_empty() => {
            "Arrows scroll  s sort  / filter  Enter details  q end"
        }
        (false, true) => "Arrows scroll  s sort  / filter  Esc clear  Enter details  q end",
        (false, false) => "s sort  / filter  Enter details  q end",
    })
}
