#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace strait::data {

// StoreError bad_input: "<origin>: <why>".
[[noreturn]] void refuse_record(const std::string& origin, const std::string& why);

// The JSON of a line of a data file.
nlohmann::json parse_line(std::string_view line, const std::string& origin);

// The type of a value, in words for a sentence: "a number", "a list".
const char* kind_of(const nlohmann::json& value);

// The string under a key that a record must have.
std::string required_string(const nlohmann::json& object, const char* key,
                            const std::string& origin);

}  // namespace strait::data
