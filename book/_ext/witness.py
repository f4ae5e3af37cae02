"""What a chapter needs of its machine, told by the chapter's own run.

`WATCH` runs in a chapter's first hidden cell, `TELL` in its last: packages that were loaded in
between, and what a browser has not (processes, threads, sockets) where a cell or a module of ours
asked for it. The answer is a cell's output, so that it lies in the cache of runs with the rest;
`launch` reads it when the page is made.
"""

WATCH = """\
def _watched():
    import sys, sysconfig, threading

    library, before, asked = sysconfig.get_path("stdlib"), set(sys.modules), set()
    names = {"subprocess.Popen": "processes", "os.fork": "processes", "os.posix_spawn": "processes",
             "socket.connect": "sockets", "socket.bind": "sockets"}
    ours = f"{chr(47)}serving_or{chr(47)}", "ipykernel_"

    def note(what, frame):
        while frame and frame.f_code.co_filename.startswith((library, "<frozen")):
            frame = None if "site-packages" in frame.f_code.co_filename else frame.f_back
        if frame and any(part in frame.f_code.co_filename for part in ours):
            asked.add(what)

    def hear(event, _):
        if event in names:
            note(names[event], sys._getframe(1))

    def start(thread, start=threading.Thread.start):
        note("threads", sys._getframe(1))
        return start(thread)

    def told():
        # joblib starts its workers past these events, and is loaded for nothing else
        if "joblib.externals.loky.process_executor" in set(sys.modules) - before:
            asked.add("processes")
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        return {"packages": sorted(new - sys.stdlib_module_names), "asks": sorted(asked)}

    threading.Thread.start = start
    sys.addaudithook(hear)
    return told
_watched = _watched()"""

TELL = """
def _tell():
    import json
    from html import escape
    from IPython.display import HTML, display
    display(HTML(f'<div class="witness" data-told="{escape(json.dumps(_watched()))}"></div>'))
_tell()"""
