#include "framework/data/record.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/data/chat_record.h"
#include "framework/data/data_form.h"
#include "framework/fields/bounded_json.h"
#include "framework/mixed_bits.h"
#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"

namespace strait::data {

namespace {

// Refuses data for other kinds of training, because part of it would be trained on unnoticed.
void refuse_other_tasks(const nlohmann::json& root, const std::string& origin) {
  constexpr const char* kSupported =
      "which this build does not train on; it trains on \"text\", on \"prompt\" and "
      "\"completion\", and on \"messages\"";
  if (root.contains("chosen") || root.contains("rejected")) {
    refuse_record(
        origin,
        "\"chosen\" and \"rejected\" are a preference; set train.preference.loss to learn it, or "
        "write the chosen answer as the completion of a prompt, and leave both keys out");
  }
  if (!root.contains("label")) return;
  const bool answered = root.contains("completion") || root.contains("messages") ||
                        root.contains("conversations") || root.contains("output");
  if (answered && is_rating(root["label"])) {
    refuse_record(
        origin, fmt::format("\"label\" is {}, which rates the answer as preference data does; set "
                            "train.preference.loss to \"kto\" to learn it, or keep the records "
                            "with good answers, and leave \"label\" out",
                            root["label"].dump()));
  }
  if (!answered) {
    refuse_record(origin, fmt::format("\"label\" makes it a record of classification, {}; write "
                                      "the label as the completion of a prompt",
                                      kSupported));
  }
}

// A text may be as long as its line.
constexpr fields::JsonLimits kRecordLimits{
    .depth = 64, .string_bytes = kLongestLine, .values = 1 << 20};

}  // namespace

Record parse_record(std::string_view line, const std::string& origin) {
  const nlohmann::json root = parse_line(line, origin);
  constexpr const char* kAllowed =
      "a record is an object with \"text\", or \"prompt\" and \"completion\", or \"messages\", or "
      "\"conversations\", or \"instruction\" and \"output\"";
  if (!root.is_object()) refuse_record(origin, kAllowed);
  refuse_other_tasks(root, origin);
  const bool text = root.contains("text");
  const bool chat = root.contains("messages");
  // UltraChat repeats the first message as "prompt".
  const bool pair = root.contains("completion") || (root.contains("prompt") && !chat);
  if (!text && !pair && !chat) {
    if (is_foreign_chat(root)) return foreign_chat_record(root, line, origin);
    constexpr std::size_t kKeysShown = 8;
    std::vector<std::string> keys;
    for (const auto& [key, value] : root.items()) {
      if (keys.size() < kKeysShown) keys.push_back(fmt::format("\"{}\"", key));
    }
    refuse_record(origin, fmt::format("{}; this one has {}", kAllowed,
                                      keys.empty() ? "no key with a value"
                                                   : fmt::format("{}", fmt::join(keys, ", "))));
  }
  if (static_cast<int>(text) + static_cast<int>(pair) + static_cast<int>(chat) > 1) {
    refuse_record(origin, fmt::format("{}; this one has more than one of them", kAllowed));
  }
  if (chat) return message_record(root, line, origin);
  if (is_chat_pair(root)) return chat_pair_record(line, origin);
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

bool is_rating(const nlohmann::json& label) {
  return label.is_boolean() || (label.is_number() && (label == 0 || label == 1));
}

void refuse_record(const std::string& origin, const std::string& why) {
  throw store::StoreError(store::StoreError::Kind::bad_input, origin + ": " + why);
}

nlohmann::json parse_line(std::string_view line, const std::string& origin) {
  try {
    nlohmann::json root = fields::parse_bounded_json(line, kRecordLimits);
    // Tables of many records have null where a record has none.
    if (root.is_object()) {
      std::erase_if(root.get_ref<nlohmann::json::object_t&>(),
                    [](const auto& item) { return item.second.is_null(); });
    }
    return root;
  } catch (const fields::JsonError& error) {
    refuse_record(origin, fmt::format("a line that is not JSON: {}", error.what()));
  }
}

const char* kind_of(const nlohmann::json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  return value.is_array() ? "a list" : "an object";
}

std::string required_string(const nlohmann::json& object, const char* key,
                            const std::string& origin) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_record(origin, fmt::format("there is no \"{}\"", key));
  if (!found->is_string()) {
    refuse_record(origin,
                  fmt::format("\"{}\" is {} where a string is expected", key, kind_of(*found)));
  }
  return found->get<std::string>();
}

}  // namespace strait::data
