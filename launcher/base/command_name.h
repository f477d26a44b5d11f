#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace strait::base {

// Commands that the user can copy.

// How such a command starts: "./strait" if `directory` is the checkout that `program` was built in,
// because only the script is there; otherwise "strait", which is in the PATH.
std::string command_name(const std::filesystem::path& directory,
                         const std::filesystem::path& program);

// In the current directory, for this program.
std::string command_name();

// "strait status runs/a", with the path as one shell word. `verb` may have flags.
std::string strait_command(std::string_view verb, const std::filesystem::path& path);

// UserError: the folder is not that of a run. One sentence for all verbs.
[[noreturn]] void refuse_no_run(const std::filesystem::path& folder);

// Names on the Hugging Face hub: "meta-llama/Llama-3.2-1B".

// The name in a text that may be one, with or without "hf://" or the hub's address; nullopt: it
// cannot be one. A path of a folder inside another looks the same.
std::optional<std::string> hub_name(std::string_view text);

// What to do about a missing path; ends with the command that downloads it. `options`: of that
// command, such as "--repo-type dataset", or empty. If the path may be a name on the hub, or is an
// address there, the command downloads that.
std::string download_advice(const std::string& path, std::string_view options = "");

}  // namespace strait::base
