#pragma once

#include <optional>
#include <string>
#include <string_view>

// Names on the Hugging Face hub: "meta-llama/Llama-3.2-1B".
namespace strait::base {

// The name in a text that may be one, with or without "hf://" or the hub's address; nullopt: it
// cannot be one. A path of a folder inside another looks the same.
std::optional<std::string> hub_name(std::string_view text);

// What to do about a missing path; ends with the command that downloads it. `options`: of that
// command, such as "--repo-type dataset", or empty. If the path may be a name on the hub, or is an
// address there, the command downloads that.
std::string download_advice(const std::string& path, std::string_view options = "");

}  // namespace strait::base
