#include "launcher/run/run_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <fstream>

#include "framework/fields/bounded_json.h"
#include "framework/file_descriptor.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/run/run_directory.h"

namespace strait::run {

namespace {

namespace fs = std::filesystem;

// Far more than a status of thousands of processes. Whatever has the file's name is not read whole.
constexpr std::uint64_t kMostStatusBytes = std::uint64_t{1} << 30;

std::string_view prefix_of(ReplicaRequest request) {
  return request == ReplicaRequest::leave ? "leave-" : "return-";
}

std::string json_text(const nlohmann::ordered_json& status, int indent) {
  constexpr auto kReplaceBadText = nlohmann::ordered_json::error_handler_t::replace;
  return status.dump(indent, ' ', false, kReplaceBadText) + "\n";
}

// In one write, so that a reader hardly sees half of it. False: it is longer than the file.
bool overwrite(const fs::path& file, std::string text) {
  std::error_code gone;
  const std::uintmax_t size = fs::file_size(file, gone);
  if (gone || text.size() > size) return false;
  text.resize(size, '\n');
  const FileDescriptor there(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  return there.open() && ::write(there.number(), text.data(), size) == static_cast<ssize_t>(size);
}

}  // namespace

void refuse_run_not_started(const fs::path& run) {
  if (!store::is_present(run / base::kPlanFile)) base::refuse_no_run(run);
  throw base::UserError(base::ExitCode::bad_input,
                        "the run of {} has not started; start it with: {}", run.string(),
                        run_again_command(run));
}

void refuse_not_live(const fs::path& run) {
  if (!store::is_present(run / base::kPlanFile)) base::refuse_no_run(run);
  throw base::UserError(base::ExitCode::bad_input, "no run is live in {}; see: {}", run.string(),
                        base::strait_command("status", run));
}

void refuse_foreign_status(const fs::path& run, const std::exception& error) {
  throw base::UserError(base::ExitCode::corrupt, "{} was not written by this build: {}",
                        RunDirectory::status(run).string(),
                        fields::plain_json_reason(error.what()));
}

std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run) {
  const std::filesystem::path path = RunDirectory::status(run);
  if (!store::is_present(path)) return std::nullopt;
  const std::string text = store::read_text_file(path, kMostStatusBytes);
  try {
    nlohmann::json status = fields::parse_bounded_json(text);
    if (!status.is_object()) throw fields::JsonError("it is not an object");
    return status;
  } catch (const fields::JsonError& error) {
    throw base::UserError(base::ExitCode::corrupt,
                          "{} is damaged: {}. It only shows the state of the run: remove it; "
                          "resume does without it and writes it again",
                          path.string(), error.what());
  }
}

bool replace_run_status(const fs::path& file, const nlohmann::ordered_json& status) {
  fs::path next = file;
  next += ".next";
  std::error_code failed;
  {
    std::ofstream out(next, std::ios::trunc);
    out << json_text(status, 2);
    out.close();
    if (out.fail()) failed = std::make_error_code(std::errc::io_error);
  }
  if (!failed) fs::rename(next, file, failed);
  if (!failed) return true;
  std::error_code ignored;
  fs::remove(next, ignored);
  if (overwrite(file, json_text(status, -1))) return true;
  nlohmann::ordered_json shorter = status;
  shorter["processes"] = nlohmann::ordered_json::array();
  return overwrite(file, json_text(shorter, -1));
}

void request_replica(ReplicaRequest request, const fs::path& run, std::uint32_t replica) {
  const fs::path file = run / fmt::format("{}{}", prefix_of(request), replica);
  if (std::ofstream(file).good()) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "cannot write the request to the run's launcher: {}", file.string());
}

std::vector<std::uint32_t> take_requests(ReplicaRequest request, const fs::path& run) {
  const std::string_view prefix = prefix_of(request);
  // A missing directory is not an error: the run may be moved while it is polled.
  std::vector<std::uint32_t> requested;
  std::vector<fs::path> entries;
  try {
    entries = store::entries_of(run);
  } catch (const store::StoreError&) {
    return requested;  // the caller polls again
  }
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint32_t replica = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + prefix.size(), end, replica);
    if (read.ec != std::errc() || read.ptr != end) continue;
    std::error_code failed;
    fs::remove(entry, failed);
    requested.push_back(replica);
  }
  std::ranges::sort(requested);
  return requested;
}

namespace {

// Bounds the memory for a log of any size; the caller asks again for the rest.
constexpr std::size_t kMostTaken = 4 << 20;
constexpr std::string_view kTimeShape = "dddd-dd-dd dd:dd:dd.ddd";

bool begins_with_time(std::string_view line) {
  return line.size() >= kTimeShape.size() &&
         std::ranges::equal(line.substr(0, kTimeShape.size()), kTimeShape, [](char c, char shape) {
           return shape == 'd' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == shape;
         });
}

// "1.0" as numbers; other names sort first.
std::tuple<int, int, std::string> process_order(const fs::path& file) {
  const std::string name = file.stem().string();
  int stage = -1;
  int replica = -1;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data(), end, stage);
  if (first.ec == std::errc() && first.ptr != end) std::from_chars(first.ptr + 1, end, replica);
  return {replica, stage, name};
}

}  // namespace

LogReader::LogReader(const fs::path& file) : file_(file), process_(file.stem().string()) {}

// Errors are ignored: the log of a process that has not started yet is missing.
std::vector<LogLine> LogReader::take(bool rest) {
  std::error_code gone;
  const std::uint64_t size = fs::file_size(file_, gone);
  std::vector<LogLine> lines;
  if (gone) return lines;
  if (size < taken_) {  // the file was replaced
    taken_ = 0;
    unfinished_.clear();
  }
  std::ifstream in(file_, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(taken_));
  // A line may be longer than a piece.
  bool complete = false;
  while (!complete && taken_ < size) {
    std::string piece(static_cast<std::size_t>(std::min<std::uint64_t>(size - taken_, kMostTaken)),
                      '\0');
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    piece.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
    if (piece.empty()) break;  // truncated meanwhile
    taken_ += piece.size();
    complete = piece.find('\n') != piece.npos;
    unfinished_ += piece;
  }
  // The rest of the file is taken only at its end; before that the line may still grow.
  rest = rest && taken_ >= size;
  std::size_t at = 0;
  for (;;) {
    const std::size_t end = unfinished_.find('\n', at);
    if (end == unfinished_.npos && !(rest && at < unfinished_.size())) break;
    std::string line = unfinished_.substr(at, end == unfinished_.npos ? end : end - at);
    // A line without a time belongs to the one before it, so that by_time() keeps them together.
    if (begins_with_time(line)) time_ = line.substr(0, kTimeShape.size());
    lines.push_back({time_, process_, std::move(line)});
    at = end == unfinished_.npos ? unfinished_.size() : end + 1;
  }
  unfinished_.erase(0, at);
  return lines;
}

std::vector<fs::path> log_files(const fs::path& folder, const std::string& process) {
  std::vector<fs::path> files;
  for (const fs::path& file : store::entries_of(folder)) {
    if (file.extension() != ".log") continue;
    if (process.empty() || file.stem() == process) files.push_back(file);
  }
  std::ranges::sort(files, {}, process_order);
  return files;
}

std::string last_line_with(const fs::path& file, const std::string& text) {
  std::ifstream lines(file);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(text) != std::string::npos) found = line;
  }
  return found;
}

std::vector<LogLine> by_time(std::vector<LogLine> lines) {
  std::ranges::stable_sort(lines, {}, &LogLine::time);
  return lines;
}

}  // namespace strait::run
