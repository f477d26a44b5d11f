#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "framework/data/record.h"

namespace strait::data {

// The text under "system"; empty: there is none. Throws as the others do.
std::string system_text(const nlohmann::json& root, const std::string& origin);

// A record with "messages": a list of {"role", "content"}. A content is a string, or a list of
// {"type": "text", "text"}, which are joined; beside "tool_calls" it may be null. A text under
// "system" beside them becomes the first message. `line` is the record's text. Throws StoreError
// bad_input that starts with `origin`.
Record message_record(const nlohmann::json& root, std::string_view line, const std::string& origin);

// The same of a chat that is to be continued, in which the assistant need not have said anything.
Record prompt_record(const nlohmann::json& root, std::string_view line, const std::string& origin);

// What tools a chat has, and which its messages call, as JSON in one order of keys, however the
// record is written; empty: none.
std::string tools_content(const Record& record);

// Whether a record has the form of ShareGPT ("conversations": a list of {"from", "value"}) or of
// Alpaca ("instruction", perhaps "input", "output", "history"); both perhaps with "system".
bool is_foreign_chat(const nlohmann::json& root);

// Such a record as messages. Alpaca's input stands two line ends behind the instruction. `line` is
// the record's text.
Record foreign_chat_record(const nlohmann::json& root, std::string_view line,
                           const std::string& origin);

}  // namespace strait::data
