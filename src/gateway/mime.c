#include "gateway/mime.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

struct mime {
    const char *ext, *type;
};

/* Sorted by extension. */
static const struct mime table[] = {
    {"3g2", "audio/3gpp2"},
    {"3gp", "audio/3gpp"},
    {"3gpp", "audio/3gpp"},
    {"3gpp2", "audio/3gpp2"},
    {"7z", "application/x-7z-compressed"},
    {"a", "application/octet-stream"},
    {"aac", "audio/aac"},
    {"adts", "audio/aac"},
    {"ai", "application/postscript"},
    {"aif", "audio/x-aiff"},
    {"aifc", "audio/x-aiff"},
    {"aiff", "audio/x-aiff"},
    {"ass", "audio/aac"},
    {"au", "audio/basic"},
    {"avi", "video/x-msvideo"},
    {"avif", "image/avif"},
    {"bat", "text/plain"},
    {"bcpio", "application/x-bcpio"},
    {"bib", "text/x-bibtex"},
    {"bin", "application/octet-stream"},
    {"bmp", "image/bmp"},
    {"c", "text/plain"},
    {"cc", "text/x-c++src"},
    {"cdf", "application/x-netcdf"},
    {"cpio", "application/x-cpio"},
    {"cpp", "text/x-c++src"},
    {"csh", "application/x-csh"},
    {"css", "text/css"},
    {"csv", "text/csv"},
    {"diff", "text/x-diff"},
    {"dll", "application/octet-stream"},
    {"doc", "application/msword"},
    {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
    {"dot", "application/msword"},
    {"dvi", "application/x-dvi"},
    {"eml", "message/rfc822"},
    {"eps", "application/postscript"},
    {"etx", "text/x-setext"},
    {"exe", "application/octet-stream"},
    {"flac", "audio/flac"},
    {"geojson", "application/geo+json"},
    {"gif", "image/gif"},
    {"gtar", "application/x-gtar"},
    {"h", "text/plain"},
    {"h5", "application/x-hdf5"},
    {"hdf", "application/x-hdf"},
    {"heic", "image/heic"},
    {"heif", "image/heif"},
    {"hpp", "text/x-c++hdr"},
    {"htm", "text/html"},
    {"html", "text/html"},
    {"ico", "image/vnd.microsoft.icon"},
    {"ief", "image/ief"},
    {"java", "text/x-java"},
    {"jpe", "image/jpeg"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript"},
    {"json", "application/json"},
    {"jsonl", "application/jsonl"},
    {"ksh", "text/plain"},
    {"latex", "application/x-latex"},
    {"loas", "audio/aac"},
    {"log", "text/plain"},
    {"m1v", "video/mpeg"},
    {"m3u", "application/vnd.apple.mpegurl"},
    {"m3u8", "application/vnd.apple.mpegurl"},
    {"m4a", "audio/mp4"},
    {"man", "application/x-troff-man"},
    {"md", "text/markdown"},
    {"me", "application/x-troff-me"},
    {"mht", "message/rfc822"},
    {"mhtml", "message/rfc822"},
    {"mif", "application/x-mif"},
    {"mjs", "text/javascript"},
    {"mov", "video/quicktime"},
    {"movie", "video/x-sgi-movie"},
    {"mp2", "audio/mpeg"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"mpa", "video/mpeg"},
    {"mpe", "video/mpeg"},
    {"mpeg", "video/mpeg"},
    {"mpg", "video/mpeg"},
    {"ms", "application/x-troff-ms"},
    {"n3", "text/n3"},
    {"nc", "application/x-netcdf"},
    {"nq", "application/n-quads"},
    {"nt", "application/n-triples"},
    {"nws", "message/rfc822"},
    {"o", "application/octet-stream"},
    {"obj", "application/octet-stream"},
    {"oda", "application/oda"},
    {"oga", "audio/ogg"},
    {"ogg", "audio/ogg"},
    {"ogv", "video/ogg"},
    {"opus", "audio/opus"},
    {"otf", "font/otf"},
    {"p12", "application/x-pkcs12"},
    {"p7c", "application/pkcs7-mime"},
    {"parquet", "application/vnd.apache.parquet"},
    {"patch", "text/x-diff"},
    {"pbm", "image/x-portable-bitmap"},
    {"pdf", "application/pdf"},
    {"pfx", "application/x-pkcs12"},
    {"pgm", "image/x-portable-graymap"},
    {"pl", "text/plain"},
    {"png", "image/png"},
    {"pnm", "image/x-portable-anymap"},
    {"pot", "application/vnd.ms-powerpoint"},
    {"ppa", "application/vnd.ms-powerpoint"},
    {"ppm", "image/x-portable-pixmap"},
    {"pps", "application/vnd.ms-powerpoint"},
    {"ppt", "application/vnd.ms-powerpoint"},
    {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
    {"ps", "application/postscript"},
    {"pwz", "application/vnd.ms-powerpoint"},
    {"py", "text/x-python"},
    {"pyc", "application/x-python-code"},
    {"pyo", "application/x-python-code"},
    {"qt", "video/quicktime"},
    {"ra", "audio/x-pn-realaudio"},
    {"ram", "application/x-pn-realaudio"},
    {"ras", "image/x-cmu-raster"},
    {"rdf", "application/xml"},
    {"rgb", "image/x-rgb"},
    {"roff", "application/x-troff"},
    {"rtf", "application/rtf"},
    {"rtx", "text/richtext"},
    {"sgm", "text/x-sgml"},
    {"sgml", "text/x-sgml"},
    {"sh", "application/x-sh"},
    {"shar", "application/x-shar"},
    {"snd", "audio/basic"},
    {"so", "application/octet-stream"},
    {"src", "application/x-wais-source"},
    {"srt", "text/plain"},
    {"sv4cpio", "application/x-sv4cpio"},
    {"sv4crc", "application/x-sv4crc"},
    {"svg", "image/svg+xml"},
    {"swf", "application/x-shockwave-flash"},
    {"t", "application/x-troff"},
    {"tar", "application/x-tar"},
    {"tcl", "application/x-tcl"},
    {"tex", "application/x-tex"},
    {"texi", "application/x-texinfo"},
    {"texinfo", "application/x-texinfo"},
    {"tif", "image/tiff"},
    {"tiff", "image/tiff"},
    {"toml", "application/toml"},
    {"tr", "application/x-troff"},
    {"trig", "application/trig"},
    {"tsv", "text/tab-separated-values"},
    {"ttf", "font/ttf"},
    {"txt", "text/plain"},
    {"ustar", "application/x-ustar"},
    {"vcf", "text/x-vcard"},
    {"vtt", "text/vtt"},
    {"wasm", "application/wasm"},
    {"wav", "audio/x-wav"},
    {"webm", "video/webm"},
    {"webmanifest", "application/manifest+json"},
    {"webp", "image/webp"},
    {"wiz", "application/msword"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    {"wsdl", "application/xml"},
    {"xbm", "image/x-xbitmap"},
    {"xlb", "application/vnd.ms-excel"},
    {"xls", "application/vnd.ms-excel"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {"xml", "text/xml"},
    {"xpdl", "application/xml"},
    {"xpm", "image/x-xpixmap"},
    {"xsl", "application/xml"},
    {"xwd", "image/x-xwindowdump"},
    {"yaml", "application/yaml"},
    {"yml", "application/yaml"},
    {"zip", "application/zip"},
};

static const struct mime encodings[] = {
    {"gz", "gzip"}, {"Z", "compress"}, {"bz2", "bzip2"}, {"xz", "xz"}, {"br", "br"},
};

/* Short forms of two extensions. */
static const struct {
    const char *ext, *type, *encoding;
} shorts[] = {
    {"svgz", "image/svg+xml", "gzip"},      {"tgz", "application/x-tar", "gzip"},
    {"taz", "application/x-tar", "gzip"},   {"tz", "application/x-tar", "gzip"},
    {"tbz2", "application/x-tar", "bzip2"}, {"txz", "application/x-tar", "xz"},
};

static const char *find_type(const char *ext, size_t len)
{
    size_t lo = 0, hi = COUNTOF(table);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = strncasecmp(ext, table[mid].ext, len);
        if (c == 0 && table[mid].ext[len])
            c = -1;
        if (c == 0)
            return table[mid].type;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* The dot of the extension before `end`; leading dots belong to the name. */
static const char *find_dot(const char *base, const char *end)
{
    while (base < end && *base == '.')
        base++;
    for (const char *p = end; p > base; p--)
        if (p[-1] == '.')
            return p - 1;
    return NULL;
}

const char *mime_guess(const char *name, const char **ret_encoding)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    const char *end = base + strlen(base);
    const char *encoding = NULL, *type = NULL;
    const char *dot = find_dot(base, end);
    for (size_t i = 0; dot && i < COUNTOF(shorts); i++) {
        if (strcasecmp(dot + 1, shorts[i].ext) == 0) {
            encoding = shorts[i].encoding;
            type = shorts[i].type;
        }
    }
    for (size_t i = 0; dot && !type && i < COUNTOF(encodings); i++) {
        if (strcmp(dot + 1, encodings[i].ext) == 0) {
            encoding = encodings[i].type;
            end = dot;
            dot = find_dot(base, end);
            break;
        }
    }
    if (!type && dot)
        type = find_type(dot + 1, (size_t)(end - dot - 1));
    if (ret_encoding)
        *ret_encoding = encoding;
    return type;
}

const char *mime_content_type(const char *name)
{
    size_t n = strlen(name);
    if (n > 6 && strcmp(name + n - 6, ".ipynb") == 0)
        return "application/x-ipynb+json";
    const char *encoding;
    const char *type = mime_guess(name, &encoding);
    if (encoding)
        return strcmp(encoding, "gzip") == 0 ? "application/gzip" : "application/octet-stream";
    if (!type)
        return "application/octet-stream";
    return strcmp(type, "text/plain") == 0 ? "text/plain; charset=UTF-8" : type;
}
