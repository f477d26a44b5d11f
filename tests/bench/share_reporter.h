#pragma once

#include <benchmark/benchmark.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace strait {

// As the console shows it, and at the end each speed as a share of that of "copy" at the same size.
class ShareReporter : public benchmark::ConsoleReporter {
 public:
  explicit ShareReporter(std::string what) : what_(std::move(what)) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto found = run.counters.find("bytes_per_second");
      if (found != run.counters.end()) speeds_.emplace_back(run.benchmark_name(), found->second);
    }
  }
  void Finalize() override {
    std::map<std::string, double> copies;
    const auto size_of = [](const std::string& name) { return name.substr(name.rfind('/') + 1); };
    for (const auto& [name, speed] : speeds_) {
      if (name.starts_with("copy/")) copies[size_of(name)] = speed;
    }
    GetOutputStream() << "\n" << what_ << " per second, as a share of memcpy's\n";
    for (const auto& [name, speed] : speeds_) {
      const auto copied = copies.find(size_of(name));
      if (copied == copies.end()) continue;
      std::array<char, 160> line{};
      std::snprintf(line.data(), line.size(), "%-60s %6.2f GB/s %6.1f %%\n", name.c_str(),
                    speed / 1e9, 100 * speed / copied->second);
      GetOutputStream() << line.data();
    }
  }

 private:
  std::string what_;
  std::vector<std::pair<std::string, double>> speeds_;
};

// Of what is registered, those that the command line names. The exit code.
inline int run_benchmarks(int count, char** words, const std::string& what) {
  benchmark::Initialize(&count, words);
  if (benchmark::ReportUnrecognizedArguments(count, words)) return 1;
  ShareReporter reporter(what);
  return benchmark::RunSpecifiedBenchmarks(&reporter) == 0 ? 1 : 0;
}

}  // namespace strait
