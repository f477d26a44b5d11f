#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// Self-contained pages of HTML: they request nothing, and their policy forbids them to. Pure.
namespace strait::cli {

// Of every page: report_page.css and report_page.js.
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

std::string escaped(const std::string& text);
// A text that opens on a click; nothing of an empty text.
std::string folded(const char* title, const std::string& text);

// `head`, `foot`: HTML before and after what the script draws from `shown` (report_page.js).
std::string html_page(const std::string& title, const std::string& head, const std::string& foot,
                      const nlohmann::json& shown);

}  // namespace strait::cli
