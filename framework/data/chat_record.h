#pragma once

#include <nlohmann/json_fwd.hpp>

#include "framework/data/record.h"

namespace strait::data {

// The text under "system"; empty: none. Throws like the others.
std::string system_text(const nlohmann::json& root, const std::string& origin);

// A record with "messages": a list of {"role", "content"}. A content is a string, or a list of
// {"type": "text", "text"}, which are joined. It may be null if there are "tool_calls". A message
// of the assistant's with "train": false or a "weight" of 0 is not learnt. A text under "system"
// becomes the first message. `line` is the record's text. Throws StoreError
// bad_input that starts with `origin`.
Record message_record(const nlohmann::json& root, std::string_view line, const std::string& origin);

// The same for a chat that is to be continued; the assistant need not have spoken.
Record prompt_record(const nlohmann::json& root, std::string_view line, const std::string& origin);

// The tools of a chat and the calls of its messages, as JSON with sorted keys; empty: none.
std::string tools_content(const Record& record);

// Whether "prompt" and "completion" are lists of messages, as TRL writes them.
bool is_chat_pair(const nlohmann::json& root);

// The messages of both lists, of which only those of the completion are learnt.
Record chat_pair_record(std::string_view line, const std::string& origin);

// Whether a record has the form of ShareGPT ("conversations": a list of {"from", "value"}, or of
// {"role", "content"}) or of Alpaca ("instruction", optionally "input", "output", "history"). Both
// may have "system".
bool is_foreign_chat(const nlohmann::json& root);

// Converts such a record to messages. Alpaca's input follows the instruction after an empty line.
// `line` is the record's text.
Record foreign_chat_record(const nlohmann::json& root, std::string_view line,
                           const std::string& origin);

}  // namespace strait::data
