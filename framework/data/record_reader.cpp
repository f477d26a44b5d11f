#include "framework/data/record_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/data/chat_record.h"
#include "framework/store/store_error.h"
#include "framework/utf8.h"

namespace strait::data {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;  // keeps the order of keys, which templates show

constexpr const char* kRejected = "rejected";

Answer text_answer(const std::string& origin, const char* key, std::string prompt,
                   std::string text) {
  return {origin, key, key != kRejected, false, std::move(prompt), std::move(text)};
}

Answer chat_answer(const std::string& origin, const char* key, const ordered_json& root,
                   const ordered_json& prompt, const ordered_json& messages) {
  ordered_json shared = ordered_json::object();
  for (const char* name : {"system", "tools"}) {
    if (root.contains(name)) shared[name] = root[name];
  }
  return {origin, key, key != kRejected, true, prompt.dump(), messages.dump(), shared.dump()};
}

// As TRL: up to the first difference, and a space before it belongs to the answers.
std::size_t common_length(const std::string& chosen, const std::string& rejected) {
  const auto [end, other] = std::ranges::mismatch(chosen, rejected);
  auto length = static_cast<std::size_t>(end - chosen.begin());
  // Not inside of a character.
  while (length > 0 && length < chosen.size() &&
         (static_cast<unsigned char>(chosen[length]) & 0xc0U) == 0x80U) {
    --length;
  }
  return length > 0 && chosen[length - 1] == ' ' ? length - 1 : length;
}

std::array<Answer, 2> of_texts(const json& root, const std::string& origin) {
  std::string prompt;
  std::string chosen = required_string(root, "chosen", origin);
  std::string rejected = required_string(root, kRejected, origin);
  if (root.contains("prompt")) {
    prompt = required_string(root, "prompt", origin);
  } else {
    const std::size_t length = common_length(chosen, rejected);
    prompt = chosen.substr(0, length);
    chosen.erase(0, length);
    rejected.erase(0, length);
  }
  return {text_answer(origin, "chosen", prompt, chosen),
          text_answer(origin, kRejected, prompt, rejected)};
}

// UltraFeedback has a text prompt and lists that repeat it. Other lists would train without it.
void refuse_lost_prompt(const ordered_json& root, const ordered_json& common,
                        const std::string& origin) {
  const auto prompt = root.find("prompt");
  if (prompt == root.end() || prompt->is_null() || *prompt == "") return;
  for (const ordered_json& message : common) {
    const bool object = message.is_object();
    const ordered_json role = object ? message.value("role", ordered_json()) : ordered_json();
    if (role != "system" && role != "developer") return;
  }
  refuse_record(
      origin,
      "\"prompt\" is not a list of messages, and \"chosen\" and \"rejected\" are lists that "
      "do not begin with it; write it as a list, too: \"prompt\": [{\"role\": \"user\", "
      "\"content\": \"...\"}]");
}

std::array<Answer, 2> of_messages(const ordered_json& root, const std::string& origin) {
  ordered_json chosen = root["chosen"];
  ordered_json rejected = root[kRejected];
  ordered_json prompt = ordered_json::array();
  if (root.contains("prompt") && root["prompt"].is_array()) {
    prompt = root["prompt"];
  } else {
    const auto [end, other] = std::ranges::mismatch(chosen, rejected);
    const auto common = end - chosen.begin();
    prompt.insert(prompt.end(), chosen.begin(), end);
    refuse_lost_prompt(root, prompt, origin);
    chosen.erase(chosen.begin(), chosen.begin() + common);
    rejected.erase(rejected.begin(), rejected.begin() + common);
  }
  return {chat_answer(origin, "chosen", root, prompt, chosen),
          chat_answer(origin, kRejected, root, prompt, rejected)};
}

json::value_t type_of(const json& root, const char* key) {
  const auto found = root.is_object() ? root.find(key) : root.end();
  return found == root.end() ? json::value_t::null : found->type();
}

bool is_text_or_list(json::value_t type) {
  return type == json::value_t::string || type == json::value_t::array;
}

}  // namespace

// Only the answer itself is learnt, not what the assistant says before it.
Record answer_record(const Answer& asked, const Answer& answered) {
  Record record;
  if (asked.is_chat) {
    ordered_json chat = {{"messages", ordered_json::parse(asked.prompt)}};
    const ordered_json messages = ordered_json::parse(answered.text);
    chat["messages"].insert(chat["messages"].end(), messages.begin(), messages.end());
    chat.update(ordered_json::parse(asked.shared));
    const bool answers = messages.size() == 1 && messages.front().is_object() &&
                         messages.front().value("role", ordered_json()) == "assistant";
    if (!answers) {
      refuse_record(answered.origin,
                    fmt::format("\"{}\" has {} message{} after the prompt, and one of the role "
                                "\"assistant\" is expected",
                                answered.key, messages.size(), messages.size() == 1 ? "" : "s"));
    }
    const std::string text = chat.dump();
    record = message_record(json::parse(text), text, asked.origin);
    choose_targets(record, Targets::last);
  } else {
    record.origin = asked.origin;
    record.pieces = {{asked.prompt, false}, {answered.text, true}};
    record.whole = true;
  }
  record.undesirable = !asked.desirable;
  return record;
}

std::array<Answer, 2> parse_preference(std::string_view line, const std::string& origin) {
  const json root = parse_line(line, origin);
  const json::value_t type = type_of(root, "chosen");
  if (!is_text_or_list(type) || type_of(root, kRejected) != type) {
    refuse_record(origin,
                  "a preference is an object with \"chosen\" and \"rejected\", two texts or two "
                  "lists of messages, perhaps after a \"prompt\"; train.preference.loss trains on "
                  "nothing else");
  }
  return type == json::value_t::string ? of_texts(root, origin)
                                       : of_messages(ordered_json::parse(line), origin);
}

std::vector<Answer> parse_rated(std::string_view line, const std::string& origin) {
  const json root = parse_line(line, origin);
  if (root.is_object() && (root.contains("chosen") || root.contains(kRejected))) {
    auto [chosen, rejected] = parse_preference(line, origin);
    return {std::move(chosen), std::move(rejected)};
  }
  const json::value_t type = type_of(root, "completion");
  const bool rated = root.is_object() && root.contains("label") && is_rating(root["label"]);
  if (!rated || !is_text_or_list(type) || type_of(root, "prompt") != type) {
    refuse_record(
        origin,
        "a rated answer is an object with \"prompt\" and \"completion\", two texts or two "
        "lists of messages, and a \"label\", true or false; or it has \"chosen\" and "
        "\"rejected\"; train.preference.loss = \"kto\" trains on nothing else");
  }
  Answer answer = text_answer(origin, "completion", "", "");
  if (type == json::value_t::string) {
    answer.prompt = required_string(root, "prompt", origin);
    answer.text = required_string(root, "completion", origin);
  } else {
    const ordered_json ordered = ordered_json::parse(line);
    answer = chat_answer(origin, "completion", ordered, ordered["prompt"], ordered["completion"]);
  }
  answer.desirable = root["label"] == true || root["label"] == 1;
  return {std::move(answer)};
}

namespace {

constexpr std::uint64_t kPiece = 1 << 20;

}  // namespace

RecordReader::RecordReader(const std::filesystem::path& path, const TokenizerOpener& tables,
                           bool preferences, bool rated)
    : file_(path), lines_(has_records(path)), preferences_(preferences), rated_(rated) {
  if (file_.size() == 0) {
    // An empty file is a mistake, such as an interrupted download, so it is not taken for no
    // records.
    throw store::StoreError(store::StoreError::Kind::bad_input, "{} is empty", path.string());
  }
  std::string head(std::min<std::uint64_t>(file_.size(), kFormBytes), '\0');
  file_.read(0, std::as_writable_bytes(std::span(head)));
  if (is_table(path)) {
    refuse_unless_table(path, head);
    table_ = tables.open_table(path);
    return;
  }
  refuse_other_forms(path, head, lines_);
  if (!preferences_ || lines_) return;
  throw store::StoreError(
      store::StoreError::Kind::bad_input,
      "{} is one text, and train.preference.loss needs preferences; write them as JSONL "
      "with {} on each line",
      path.string(),
      rated_ ? "a \"prompt\", a \"completion\" and a \"label\""
             : "a \"prompt\", a \"chosen\" and a \"rejected\"");
}

std::optional<Record> RecordReader::next() {
  if (!lines_) return next_part();
  while (ready_.empty()) {
    const std::optional<std::string> line = table_ == nullptr ? next_line() : next_row();
    if (!line) break;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    ++records_;
    if (!preferences_) return parse_record(*line, origin());
    parse_pairs(*line);
  }
  if (!ready_.empty()) {
    Record next = std::move(ready_.front());
    ready_.pop_front();
    return next;
  }
  if (records_ == 0) {
    throw store::StoreError(store::StoreError::Kind::bad_input, "{} holds no record{}",
                            file_.path().string(), table_ == nullptr ? ", only blank lines" : "");
  }
  if (!unpaired_.empty()) {
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            "{}: all records have the same prompt, but train.preference.loss = "
                            "\"kto\" also reads answers to other prompts; add records with others",
                            file_.path().string());
  }
  return std::nullopt;
}

void RecordReader::parse_pairs(const std::string& line) {
  if (rated_) {
    for (const Answer& answer : parse_rated(line, origin())) add_rated(answer);
    return;
  }
  const auto [chosen, rejected] = parse_preference(line, origin());
  add_pair(answer_record(chosen, chosen), answer_record(rejected, rejected));
}

void RecordReader::add_pair(const Record& first, const Record& second) {
  ready_.push_back(first);
  ready_.push_back(second);
}

void RecordReader::add_rated(const Answer& answer) {
  if (last_ && last_->is_chat != answer.is_chat) {
    refuse_record(answer.origin,
                  fmt::format("the records before it are {}, and this one is not; write all of "
                              "them in one form",
                              last_->is_chat ? "lists of messages" : "texts"));
  }
  // KTO compares with answers to other prompts. Until the first of these is read, answers wait.
  if (last_ && last_->prompt != answer.prompt) other_ = std::move(last_);
  if (other_) {
    for (const Answer& one : std::exchange(unpaired_, {})) {
      add_pair(answer_record(one, one), answer_record(one, answer));
    }
    add_pair(answer_record(answer, answer), answer_record(answer, *other_));
  } else {
    unpaired_.push_back(answer);
  }
  last_ = answer;
}

std::optional<Record> RecordReader::next_part() {
  if (offset_ == 0) {
    fill();
    if (buffer_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
  }
  // A part plus the character after it, so that a cut character is recognised.
  while (buffer_.size() - position_ <= kPartBytes && offset_ < file_.size()) fill();
  if (position_ == buffer_.size()) {
    if (records_ > 0) return std::nullopt;
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            "{} is empty but for its byte order mark", file_.path().string());
  }
  const std::size_t end = part_end(buffer_, position_);
  const std::uint64_t before = offset_ - (buffer_.size() - position_);
  Record record;
  record.origin = file_.path().string();
  record.pieces = {{buffer_.substr(position_, end - position_), true}};
  record.first = records_++ == 0;
  record.last = offset_ == file_.size() && end == buffer_.size();
  refuse_binary(file_.path(), record.pieces[0].text, before);
  position_ = end;
  return record;
}

std::optional<std::string> RecordReader::next_line() {
  std::size_t searched = position_;
  std::size_t end = buffer_.find('\n', searched);
  while (end == std::string::npos && offset_ < file_.size()) {
    // The bytes searched before are not searched again; fill() moves them to the front.
    searched = buffer_.size() - position_;
    fill();
    end = buffer_.find('\n', searched);
    // The line is refused below before more of it is read.
    if (end == std::string::npos && buffer_.size() > kMaximumLine) break;
  }
  if (end == std::string::npos) end = buffer_.size();
  if (position_ == buffer_.size()) return std::nullopt;
  ++line_;
  if (end - position_ > kMaximumLine) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input, "{}: the line is longer than {} bytes; {}", origin(),
        kMaximumLine,
        advice_on_long_line(file_.path(), std::string_view(buffer_).substr(position_)));
  }
  std::string line = buffer_.substr(position_, end - position_);
  position_ = std::min(end + 1, buffer_.size());
  if (line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return line;
}

std::optional<std::string> RecordReader::next_row() {
  std::optional<std::string> row = table_->next();
  if (!row) return row;
  ++line_;
  if (row->size() <= kMaximumLine) return row;
  throw store::StoreError(store::StoreError::Kind::bad_input,
                          "{}: the record is longer than {} bytes; leave it out, or cut its text",
                          origin(), kMaximumLine);
}

std::uint64_t RecordReader::bytes_read() const {
  if (table_ == nullptr) return offset_;
  return static_cast<std::uint64_t>(table_->share_read() * static_cast<double>(file_.size()));
}

// Consumed bytes are dropped first, so `position_` is 0 afterwards.
void RecordReader::fill() {
  buffer_.erase(0, position_);
  position_ = 0;
  const std::size_t kept = buffer_.size();
  const std::uint64_t count = std::min(kPiece, file_.size() - offset_);
  buffer_.resize(kept + count);
  file_.read(offset_, std::as_writable_bytes(std::span(buffer_).subspan(kept)));
  offset_ += count;
}

std::string RecordReader::origin() const {
  return fmt::format("{}:{}", file_.path().string(), line_);
}

}  // namespace strait::data
