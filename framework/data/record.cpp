#include "framework/data/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "framework/data/chat_record.h"
#include "framework/data/record_fields.h"
#include "framework/mixed_bits.h"
#include "framework/store/file_hash.h"

namespace strait::data {
namespace {

// Whether the key has a value other than null. Tables of many records have null where a record has
// none.
bool has_value(const nlohmann::json& root, const char* key) {
  const auto found = root.find(key);
  return found != root.end() && !found->is_null();
}

// Whether a label rates an answer: true, false, 1 or 0.
bool is_rating(const nlohmann::json& label) {
  return label.is_boolean() || (label.is_number() && (label == 0 || label == 1));
}

// Refuses data for other kinds of training, because part of it would be trained on unnoticed.
void refuse_other_tasks(const nlohmann::json& root, const std::string& origin) {
  constexpr const char* kSupported =
      "which this build does not train on; it trains on \"text\", on \"prompt\" and "
      "\"completion\", and on \"messages\"";
  if (has_value(root, "chosen") || has_value(root, "rejected")) {
    refuse_record(
        origin,
        "\"chosen\" and \"rejected\" are a preference; set train.preference.loss to learn "
        "it, or write the chosen answer as the completion of a prompt, and leave both "
        "keys out");
  }
  if (!has_value(root, "label")) return;
  const bool answered = root.contains("completion") || root.contains("messages") ||
                        root.contains("conversations") || root.contains("output");
  if (answered && is_rating(root["label"])) {
    refuse_record(origin, fmt::format("\"label\" is {}, which rates the answer as preference data "
                                      "does, {}; keep the records with good answers, and leave "
                                      "\"label\" out",
                                      root["label"].dump(), kSupported));
  }
  if (!answered) {
    refuse_record(origin, fmt::format("\"label\" makes it a record of classification, {}; write "
                                      "the label as the completion of a prompt",
                                      kSupported));
  }
}

}  // namespace

Record parse_record(std::string_view line, const std::string& origin) {
  const nlohmann::json root = parse_line(line, origin);
  constexpr const char* kAllowed =
      "a record is an object with \"text\", or \"prompt\" and \"completion\", or \"messages\", or "
      "\"conversations\", or \"instruction\" and \"output\"";
  if (!root.is_object()) refuse_record(origin, kAllowed);
  refuse_other_tasks(root, origin);
  const bool text = root.contains("text");
  const bool pair = root.contains("prompt") || root.contains("completion");
  const bool chat = root.contains("messages");
  if (!text && !pair && !chat) {
    if (is_foreign_chat(root)) return foreign_chat_record(root, line, origin);
    constexpr std::size_t kKeysShown = 8;
    std::vector<std::string> keys;
    for (const auto& [key, value] : root.items()) {
      if (keys.size() < kKeysShown) keys.push_back(fmt::format("\"{}\"", key));
    }
    refuse_record(origin,
                  fmt::format("{}; this one has {}", kAllowed,
                              keys.empty() ? "no key" : fmt::format("{}", fmt::join(keys, ", "))));
  }
  if (static_cast<int>(text) + static_cast<int>(pair) + static_cast<int>(chat) > 1) {
    refuse_record(origin, fmt::format("{}; this one has more than one of them", kAllowed));
  }
  if (chat) return message_record(root, line, origin);
  if (pair && !system_text(root, origin).empty()) {
    refuse_record(origin,
                  "\"system\" is not used with \"prompt\", which is not rendered as a chat; put "
                  "its text into the prompt, or write the record as \"messages\"");
  }
  Record record;
  record.origin = origin;
  record.whole = !text;
  if (text) {
    record.pieces = {{required_string(root, "text", origin), true}};
  } else {
    record.pieces = {{required_string(root, "prompt", origin), false},
                     {required_string(root, "completion", origin), true}};
  }
  return record;
}

std::size_t part_end(std::string_view text, std::size_t from) {
  if (text.size() - from <= kPartBytes) return text.size();
  const std::size_t line = text.rfind('\n', from + kPartBytes - 1);
  if (line != text.npos && line > from) return line + 1;
  std::size_t end = from + kPartBytes;
  // A character has at most four bytes. A text with longer runs of such bytes is not UTF-8, and is
  // refused later.
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U; ++i) --end;
  return end;
}

bool is_held_out(const Record& record, double share, std::uint64_t seed) {
  store::FileHash hash;
  const auto add = [&hash](const std::string& text) {
    const std::uint64_t size = text.size();
    hash.update(std::as_bytes(std::span(&size, 1)));
    hash.update(std::as_bytes(std::span(text)));
  };
  // For a chat: its roles and contents, but neither its form nor keys that are not learnt.
  for (const Piece& piece : record.pieces) add(piece.text);
  add(tools_content(record));
  const std::uint64_t content = std::stoull(hash.hex().substr(0, 16), nullptr, 16);
  // A double holds exactly 53 bits.
  const std::uint64_t drawn = mixed_bits(content ^ mixed_bits(seed)) >> 11U;
  return static_cast<double>(drawn) < share * static_cast<double>(std::uint64_t{1} << 53U);
}

void choose_targets(Record& record, Targets targets) {
  if (targets == Targets::assistant) return;
  const auto last = std::find_if(record.pieces.rbegin(), record.pieces.rend(),
                                 [](const Piece& piece) { return piece.is_target; });
  const Piece* kept = last == record.pieces.rend() ? nullptr : &*last;
  for (Piece& piece : record.pieces) {
    piece.is_target = targets == Targets::all || &piece == kept;
  }
}

}  // namespace strait::data
