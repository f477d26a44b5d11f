#include "framework/store/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/store/bounded_json.h"
#include "framework/store/chat_record.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

constexpr JsonLimits kRecordLimits{.depth = 64, .string_bytes = 1 << 20, .values = 1 << 20};

[[noreturn]] void refuse_record(const std::string& origin, const std::string& why) {
  throw StoreError(StoreError::Kind::bad_input, origin + ": " + why);
}

std::string text_of(const nlohmann::json& object, const char* key, const std::string& origin) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_record(origin, fmt::format("there is no \"{}\"", key));
  if (!found->is_string()) {
    refuse_record(origin,
                  fmt::format("\"{}\" is {} where a string is expected", key, found->type_name()));
  }
  return found->get<std::string>();
}

// Data for other kinds of training, of which a part would be trained on unnoticed.
void refuse_other_tasks(const nlohmann::json& root, const std::string& origin) {
  constexpr const char* kSupported =
      "which this build does not train on; it trains on \"text\", on \"prompt\" and "
      "\"completion\", and on \"messages\"";
  if (root.contains("chosen") && root.contains("rejected")) {
    refuse_record(origin,
                  fmt::format("\"chosen\" and \"rejected\" are a preference, {}", kSupported));
  }
  const bool answered = root.contains("completion") || root.contains("messages");
  if (root.contains("label") && !answered) {
    refuse_record(origin, fmt::format("\"label\" makes it a record of classification, {}; write "
                                      "the label as the completion of a prompt",
                                      kSupported));
  }
}

}  // namespace

Record parse_record(std::string_view line, const std::string& origin) {
  nlohmann::json root;
  try {
    root = parse_bounded_json(line, kRecordLimits);
  } catch (const JsonError& error) {
    refuse_record(origin, fmt::format("a line that is not JSON: {}", error.what()));
  }
  constexpr const char* kAllowed =
      "a record is an object with \"text\", or \"prompt\" and \"completion\", or \"messages\"";
  if (!root.is_object()) refuse_record(origin, kAllowed);
  refuse_other_tasks(root, origin);
  const bool text = root.contains("text");
  const bool pair = root.contains("prompt") || root.contains("completion");
  const bool chat = root.contains("messages");
  if (!text && !pair && !chat) {
    if (is_foreign_chat(root)) return foreign_chat_record(root, origin);
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
  Record record;
  record.origin = origin;
  record.whole = !text;
  if (text) {
    record.pieces = {{text_of(root, "text", origin), true}};
  } else {
    record.pieces = {{text_of(root, "prompt", origin), false},
                     {text_of(root, "completion", origin), true}};
  }
  return record;
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

}  // namespace strait::store
