#include <charconv>
#include <iostream>

#include "framework/data/chat_record.h"
#include "framework/fields/bounded_json.h"
#include "framework/store/store_error.h"
#include "launcher/base/piped_process.h"
#include "launcher/compute/ask_model.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/verbs.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::compute {
namespace {

using Clock = std::chrono::steady_clock;

constexpr base::PythonScript kServeScript = {"strait-serve.py", "answers HTTP requests",
                                             "its standard library"};
constexpr std::chrono::seconds kStart{30};
constexpr std::chrono::seconds kWrite{30};
constexpr std::chrono::seconds kEnd{2};

// How lines of the script begin. The id is read without the rest, which may be what no parser
// takes.
constexpr std::string_view kId = R"({"id": )";
constexpr std::string_view kCancel = R"({"cancel": )";

std::optional<std::int64_t> number_after(std::string_view begin, std::string_view line) {
  std::int64_t number = 0;
  if (!line.starts_with(begin)) return std::nullopt;
  line.remove_prefix(begin.size());
  const auto read = std::from_chars(line.data(), line.data() + line.size(), number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// The requests that strait-serve.py takes over HTTP, answered in batches.
class Service : public Generation {
 public:
  Service(const models::ModelDescription& model, TextCoder& coder, InFlight in_flight,
          std::vector<std::string> words)
      : Generation({}, model, coder, {}, in_flight), coder_(coder), front_(words) {
    std::string line;
    if (front_.read_line(line, Clock::now() + kStart) != base::PipedProcess::ReadResult::line) {
      front_.wait_until(Clock::now() + kWrite);
      const std::string& errors = front_.errors();
      throw base::UserError(base::ExitCode::bad_input, "{}",
                            errors.substr(0, errors.find_last_not_of('\n') + 1));
    }
    port_ = nlohmann::json::parse(line).at("port").get<int>();
    on_over(
        [this](std::size_t number, const Completion& completion) { answer(number, completion); });
  }

  int port() const { return port_; }

  std::vector<run::InferenceRequest> poll() override {
    std::string line;
    while (!closed_) {
      const auto result = front_.read_line(line, Clock::now());
      if (result == base::PipedProcess::ReadResult::timeout) break;
      closed_ = result == base::PipedProcess::ReadResult::end;
      if (!closed_) take(line);
    }
    if (closed_) refuse_death();
    return Generation::poll();
  }
  // A signal ends it.
  bool finished() const override { return false; }
  bool idle() const override { return Generation::finished(); }

 private:
  struct Question {
    std::int64_t id = 0;
    std::vector<std::int32_t> prompt;
    bool echo = false;
  };

  // Nothing but a fault ends the script.
  [[noreturn]] void refuse_death() {
    const auto status = front_.wait_until(Clock::now() + kEnd);
    const base::ProgramResult script{status.value_or(base::ExitStatus()), "", front_.errors()};
    const std::string how = !status              ? "it takes no answers"
                            : script.err.empty() ? status->sentence()
                                                 : script.error_line();
    throw base::UserError(base::ExitCode::peer_lost,
                          "{}, which {}, has failed: {}; start the server again", kServeScript.file,
                          kServeScript.purpose, how);
  }

  std::vector<std::int32_t> tokens_of(const nlohmann::json& request) {
    if (request.contains("messages")) {
      const nlohmann::json chat{{"messages", request.at("messages")}};
      return coder_.encode_chat(data::prompt_record(chat, chat.dump(), "the request"));
    }
    const nlohmann::json& prompt = request.at("prompt");
    if (prompt.is_string()) return coder_.encode(prompt.get<std::string>());
    return prompt.get<std::vector<std::int32_t>>();
  }

  // One line of the script, which has checked types and ranges. A line that it should have refused
  // is an error of that request alone. Without its tokenizer the server would refuse every text.
  void take(const std::string& line) {
    if (const auto cancelled = number_after(kCancel, line)) {
      take_back(*cancelled);
      return;
    }
    const auto id = number_after(kId, line);
    if (!id) throw std::logic_error("strait-serve.py wrote a line without an id");
    try {
      take_request(*id, fields::parse_bounded_json(line));
    } catch (const tokenizer::DeadWorker&) {
      throw;
    } catch (const base::UserError& error) {
      refuse_request(*id, error.what());
    } catch (const store::StoreError& error) {
      refuse_request(*id, error.what());
    } catch (const fields::JsonError& error) {
      refuse_request(*id, fmt::format("the request: {}", error.what()));
    } catch (const nlohmann::json::exception& error) {
      refuse_request(*id, fmt::format("the request: {}", fields::plain_json_reason(error.what())));
    }
  }

  void take_request(std::int64_t id, const nlohmann::json& request) {
    Question question{id, tokens_of(request), request.at("echo").get<bool>()};
    cli::GenerationOptions options;
    options.max_tokens = request.at("max_tokens").get<std::int64_t>();
    options.sampling.repetition_penalty = request.at("repetition_penalty").get<double>();
    options.sampling.temperature = request.at("temperature").get<double>();
    options.sampling.top_k = request.at("top_k").get<std::int64_t>();
    options.sampling.top_p = request.at("top_p").get<double>();
    options.sampling.min_p = request.at("min_p").get<double>();
    options.sampling.seed = request.at("seed").get<std::uint64_t>();
    options.stops = request.at("stop").get<std::vector<std::string>>();
    options.score = request.at("score").get<bool>();
    // Chance is the same for a request, whatever came before it.
    options.number = 0;
    questions_.emplace(add({question.prompt, "the prompt"}, options), std::move(question));
  }

  void refuse_request(std::int64_t id, const std::string& why) {
    send({{"id", id}, {"error", why}});
  }

  // Its answer may be on the way.
  void take_back(std::int64_t id) {
    const auto found =
        std::ranges::find(questions_, id, [](const auto& one) { return one.second.id; });
    if (found == questions_.end()) return;
    cancel(found->first);
    questions_.erase(found);
  }

  void answer(std::size_t number, const Completion& completion) {
    const auto found = questions_.extract(number);
    const Question& question = found.mapped();
    nlohmann::json scores = nlohmann::json::array();
    for (const run::TokenScore& one : completion.scores) {
      scores.push_back({one.logarithm, one.likeliest, one.likeliest_logarithm});
    }
    send({{"id", question.id},
          {"text", completion.text},
          {"end", completion.end == Completion::End::length ? "length" : "stop"},
          {"prompt_text", question.echo ? coder_.decode_all(question.prompt) : ""},
          {"prompt_tokens", question.prompt},
          {"answer_tokens", completion.answer},
          {"scores", std::move(scores)}});
  }

  void send(const nlohmann::json& message) {
    const std::string line =
        message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    if (!front_.write(line, Clock::now() + kWrite)) closed_ = true;
  }

  TextCoder& coder_;
  base::PipedProcess front_;
  int port_ = 0;
  std::map<std::size_t, Question> questions_;  // that go on
  bool closed_ = false;                        // the script has ended, or takes no answers
};

}  // namespace

base::ExitCode perform(const cli::ServeFlags& flags) {
  const plan::RunFile run = load_run(flags.run);
  const auto coder = make_text_coder(tokenizer_of_run(run, flags.tokenizer), run.plan.recipe);
  const RunCheckpoint source = find_checkpoint(flags.run, flags.checkpoint);
  cli::warn(source.warning);
  const cli::Place place = choose_place(source, flags.place);
  const std::string name = std::filesystem::canonical(flags.run).filename();
  std::vector<std::string> words = base::start_of(kServeScript);
  words.insert(words.end(), {std::to_string(flags.port), name});
  Service service(models::describe(source.config), *coder,
                  {requests_in_flight(source, place), flags.batch, flags.cache_bits,
                   memory_for_cache(source, place)},
                  std::move(words));
  std::cout << fmt::format("{} answers at http://127.0.0.1:{}/v1; Ctrl-C ends it\n", name,
                           service.port());
  cli::flush_output();
  return ask_model(flags.run, source, place, service);
}

}  // namespace strait::compute
