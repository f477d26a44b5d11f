#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strait::base {

// The file of the running program. The other programs of the build (strait-torch, strait-stage,
// strait-stage-torch) and the scripts that they start (strait-tokenizer.py) are in its folder:
// build/PRESET/bin of a checkout, PREFIX/libexec/strait of an installation, strait/bin of the
// wheel.
std::filesystem::path own_program();

// The folder with recipes/ of such a program: the checkout, or PREFIX/share/strait, where the
// wheel's PREFIX is its package. Empty: there is none above the program.
std::filesystem::path shared_folder(const std::filesystem::path& program);

// The version and a hash over all sources: "0.1.0-1a2b3c4d5e6f". Two programs with the same id use
// the same protocols.
const char* build_id();

// A script of the build, for what Python's packages do and the programs do not link. It lies beside
// them.
struct PythonScript {
  const char* file;      // "strait-tokenizer.py"
  const char* purpose;   // "runs tokenizers"
  const char* packages;  // "the packages tokenizers and jinja2"
};

// UserError: it is not there.
std::filesystem::path file_of(const PythonScript& script);

// $STRAIT_PYTHON, else .venv/bin/python beside or above this program, else python3. UserError:
// there is no such program, or this user may not run it.
std::string python_for(const PythonScript& script);

// argv of the process; Python's own variables do not reach it. UserError: as above.
std::vector<std::string> start_of(const PythonScript& script);

// Runs `words`, start_of() and arguments, in place of this program. UserError: it cannot.
[[noreturn]] void replace_process(std::vector<std::string> words, const PythonScript& script);

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
